package main

import (
	"io"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/config"
)

// LogConfig is the [log] section. podd logs to standard error.
type LogConfig struct {
	Level  string `toml:"level" comment:"Minimum level of log entries: trace, debug, info, warning or error."`
	Format string `toml:"format" comment:"Format of log entries: text or json."`
}

// Validate returns a *config.FieldError for the first wrong key.
func (c LogConfig) Validate() error {
	if _, err := logrus.ParseLevel(c.Level); err != nil {
		return config.Errorf("level", "%q is none of trace, debug, info, warning, error", c.Level)
	}
	if c.Format != "text" && c.Format != "json" {
		return config.Errorf("format", "%q is neither text nor json", c.Format)
	}
	return nil
}

// setUpLogging configures logrus' standard logger, which container libraries log to as well.
func setUpLogging(c LogConfig, w io.Writer) (*logrus.Logger, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	level, err := logrus.ParseLevel(c.Level)
	if err != nil {
		return nil, err
	}
	log := logrus.StandardLogger()
	log.SetOutput(w)
	log.SetLevel(level)
	const stamp = "2006-01-02T15:04:05.000000Z07:00"
	if c.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: stamp, DisableColors: true})
	}
	routeKlog(log)
	routeContainerd(log)
	return log, nil
}
