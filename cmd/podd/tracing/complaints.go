package tracing

import (
	"errors"
	"fmt"

	"github.com/go-logr/logr"
)

// complaints collects what the SDK's logger says of OpenTelemetry's variables. It goes to stderr otherwise, past podd's
// log, with the value of a variable that is malformed: credentials. The texts have no values, but the paths of files.
type complaints struct {
	found []error
}

var _ logr.LogSink = (*complaints)(nil)

// Init implements logr.LogSink.
func (c *complaints) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink: only errors are collected.
func (c *complaints) Enabled(int) bool { return false }

// Info implements logr.LogSink.
func (c *complaints) Info(int, string, ...any) {}

// WithValues implements logr.LogSink.
func (c *complaints) WithValues(...any) logr.LogSink { return c }

// WithName implements logr.LogSink.
func (c *complaints) WithName(string) logr.LogSink { return c }

// Error implements logr.LogSink. An error can have the value, except that of a file.
func (c *complaints) Error(err error, message string, pairs ...any) {
	complaint := errors.New(message)
	if len(pairs) == 2 && pairs[0] == "file" {
		complaint = fmt.Errorf("%s: %w", message, err)
	}
	c.found = append(c.found, complaint)
}
