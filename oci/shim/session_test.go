package shim

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
)

// dialShim connects to a shim that answers with these methods.
func dialShim(t *testing.T, methods map[string]ttrpc.Method) *conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	server.RegisterService("task", &ttrpc.ServiceDesc{Methods: methods})
	go server.Serve(t.Context(), l)
	t.Cleanup(func() { server.Close() })
	socket, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{client: ttrpc.NewClient(socket), service: "task", timeout: time.Minute, ends: map[[2]string]*end{}}
	t.Cleanup(func() { c.client.Close() })
	return c
}

// TestKillIsRepeated: a shim that is just starting a command says that it has killed it, and has not.
func TestKillIsRepeated(t *testing.T) {
	var kills atomic.Int64
	ended := make(chan struct{})
	c := dialShim(t, map[string]ttrpc.Method{
		"Kill": func(_ context.Context, unmarshal func(any) error) (any, error) {
			var r task.KillRequest
			if err := unmarshal(&r); err != nil || r.ID != "c" || r.ExecID != "e" || r.Signal != 9 {
				t.Errorf("%v, %v", &r, err)
			}
			if kills.Add(1) == 3 {
				close(ended)
			}
			return empty(), nil
		},
		"Wait": func(ctx context.Context, _ func(any) error) (any, error) {
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return &task.WaitResponse{ExitStatus: 137}, nil
		},
	})
	begin := time.Now()
	(&session{conn: c, id: "c", execID: "e", ownKernel: true}).kill()
	if n := kills.Load(); n != 3 {
		t.Errorf("killed %d times", n)
	}
	if took := time.Since(begin); took >= undoTimeout {
		t.Errorf("took %s", took)
	}
}
