package shim

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
)

// late is a context whose deadline has passed and whose Err is still nil.
type late struct {
	context.Context
	deadline time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.deadline, true }

// TestShimThatDoesNotRead: calls of a shim that reads nothing end, also once its socket is full.
func TestShimThatDoesNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := &Runtime{conns: map[string]*conn{}}
	r.cfg.CallTimeout = 200 * time.Millisecond
	began := time.Now()
	for range 10 {
		c, err := r.dialShim(t.Context(), endpoint{path, 2})
		if err != nil {
			t.Fatal(err)
		}
		request := &task.ExecProcessRequest{ID: strings.Repeat("x", 200<<10)}
		if err := c.call(t.Context(), "Exec", request, empty()); !errors.Is(err, context.DeadlineExceeded) &&
			!errdefs.IsUnavailable(err) {
			t.Errorf("call of a shim that does not read = %v, want that the time is over", err)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("10 calls took %v, want %v each", took, r.cfg.CallTimeout)
	}
}

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
