package shim

import (
	"context"
	"errors"
	"testing"
	"time"
)

// late is a context whose deadline has passed and whose Err is still nil.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

func TestEndOf(t *testing.T) {
	gone := errors.New("client is gone")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for name, tt := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"no limit":     {t.Context(), nil},
		"in time":      {late{t.Context(), time.Now().Add(time.Hour)}, nil},
		"Err is nil":   {late{t.Context(), time.Now()}, context.DeadlineExceeded},
		"canceled":     {canceled, gone},
		"both at once": {late{canceled, time.Now()}, gone},
	} {
		if err := contextEnd(tt.ctx); !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
			t.Errorf("%s: contextEnd = %v, want %v", name, err, tt.want)
		}
	}
}
