package main

import (
	"io"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/image/registry"
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

// maxLogText bounds a message in bytes: libraries log what servers and clients have sent.
const maxLogText = 4 << 10

// secretHider removes secrets of URLs from entries, and bounds messages: libraries log the URLs of requests.
type secretHider struct{}

// Levels returns all levels.
func (secretHider) Levels() []logrus.Level { return logrus.AllLevels }

// Fire changes e before it is written.
func (secretHider) Fire(e *logrus.Entry) error {
	e.Message = hideSecrets(bound(e.Message))
	for key, value := range e.Data {
		switch v := value.(type) {
		case error:
			e.Data[key] = hideSecrets(v.Error())
		case string:
			e.Data[key] = hideSecrets(v)
		}
	}
	return nil
}

func hideSecrets(text string) string {
	if !strings.Contains(text, "://") {
		return text
	}
	return registry.HideSecrets(text)
}

// bound cuts a text to maxLogText.
func bound(text string) string {
	if len(text) > maxLogText {
		return strings.ToValidUTF8(text[:maxLogText], "") + "..."
	}
	return text
}
