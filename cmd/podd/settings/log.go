package settings

import (
	"fmt"

	"github.com/sirupsen/logrus"
)

// LogConfig is the [log] section. podd logs to standard error.
type LogConfig struct {
	Level  string `toml:"level" comment:"Minimum level of log entries: trace, debug, info, warning or error."`
	Format string `toml:"format" comment:"Format of log entries: text or json."`
}

// Validate reports each wrong key.
func (c LogConfig) Validate(problem func(key string, err error)) {
	if _, err := logrus.ParseLevel(c.Level); err != nil {
		problem("level", fmt.Errorf("%q is not one of trace, debug, info, warning, error", c.Level))
	}
	if c.Format != "text" && c.Format != "json" {
		problem("format", fmt.Errorf("%q is neither text nor json", c.Format))
	}
}
