package daemon

import (
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// setUpLogging configures logrus' standard logger, which container libraries log to as well.
func setUpLogging(c settings.LogConfig, w io.Writer) (*logrus.Logger, error) {
	log := logrus.StandardLogger()
	log.SetOutput(w)
	if err := configureLog(log, c); err != nil {
		return nil, err
	}
	routeKlog(log)
	routeContainerd(log)
	return log, nil
}

// configureLog sets the level and the format.
func configureLog(log *logrus.Logger, c settings.LogConfig) error {
	level, err := logrus.ParseLevel(c.Level)
	if err != nil {
		return err
	}
	log.SetLevel(level)
	const stamp = "2006-01-02T15:04:05.000000Z07:00"
	if c.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: stamp, DisableColors: true})
	}
	log.ReplaceHooks(logrus.LevelHooks{})
	log.AddHook(secretHider{})
	return nil
}
