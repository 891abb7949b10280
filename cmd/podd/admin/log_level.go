package admin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/containerd/errdefs"
)

// LogLevel is the answer to GET /log-level, and the request and answer of PUT.
type LogLevel struct {
	// Level is the minimum level of log entries: trace, debug, info, warning or error.
	Level string `json:"level"`
}

func (rt router) logLevel(n Node) {
	rt.answer(http.MethodGet, "/log-level", timeout, func(context.Context, *http.Request) (any, error) {
		return LogLevel{n.LogLevel()}, nil
	})
	rt.answer(http.MethodPut, "/log-level", timeout, func(_ context.Context, r *http.Request) (any, error) {
		var req LogLevel
		if err := decode(r, &req); err != nil {
			return nil, err
		}
		if err := n.SetLogLevel(req.Level); err != nil {
			return nil, fmt.Errorf("%w: level: %w", errdefs.ErrInvalidArgument, err)
		}
		return LogLevel{n.LogLevel()}, nil
	})
}
