package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim/fifo"
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
	c := &conn{client: ttrpc.NewClient(socket), service: "task", timeout: time.Minute, exits: map[[2]string]*exitQuery{}}
	t.Cleanup(func() { c.client.Close() })
	return c
}

// TestIdentifyRefusesForeignProcess: a shim's process must run in the bundle, which the error names.
func TestIdentifyRefusesForeignProcess(t *testing.T) {
	c := dialShim(t, map[string]ttrpc.Method{
		"Connect": func(context.Context, func(any) error) (any, error) { return &task.ConnectResponse{ShimPid: 1}, nil },
	})
	b := bundle{driver.Bundle(t.TempDir())}
	p, err := c.identify(t.Context(), b)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "does not run in "+b.Dir()+":") {
		t.Errorf("identify = %v, %v, want a failed precondition that names %s", p, err, b.Dir())
	}
}

// TestKillIsRepeated: a shim that is just starting a command reports that it has killed it, but has not.
func TestKillIsRepeated(t *testing.T) {
	var kills atomic.Int64
	ended := make(chan struct{})
	c := dialShim(t, map[string]ttrpc.Method{
		"Kill": func(_ context.Context, unmarshal func(any) error) (any, error) {
			var r task.KillRequest
			if err := unmarshal(&r); err != nil || r.ID != "c" || r.ExecID != "e" || r.Signal != 9 {
				t.Errorf("kill request = %v, %v, want signal 9 for e in c", &r, err)
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
	(&session{conn: c, id: "c", execID: "e", ownKernel: true}).killCommand()
	if n := kills.Load(); n != 3 {
		t.Errorf("%d kill requests, want 3", n)
	}
	if took := time.Since(begin); took >= driver.UndoTimeout {
		t.Errorf("killCommand took %s, want less than %s", took, driver.UndoTimeout)
	}
}

// TestContainerEndsBeforeItsCommand: if the container ends while a command is started, the error is FailedPrecondition,
// as with other handlers, not NotFound.
func TestContainerEndsBeforeItsCommand(t *testing.T) {
	gone := func(context.Context, func(any) error) (any, error) {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "the virtual machine has ended")
	}
	fine := func(context.Context, func(any) error) (any, error) { return empty(), nil }
	for name, methods := range map[string]map[string]ttrpc.Method{
		"before Exec":  {"Exec": gone},
		"before Start": {"Exec": fine, "Start": gone, "Kill": fine, "Wait": gone},
	} {
		s := &session{conn: dialShim(t, methods), id: "c", execID: "e", background: func(func()) {}}
		err := s.startCommand(t.Context(), &specs.Process{}, process.Process{})
		if !errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "not running") {
			t.Errorf("%s: startCommand = %v, want a failed precondition: not running", name, err)
		}
	}
}

// TestContainerEndsInAStart: a shim that starts a command in a container that has exited takes long to answer, or never
// reports the end of what it has not started. The error does not wait for it.
func TestContainerEndsInAStart(t *testing.T) {
	fine := func(context.Context, func(any) error) (any, error) { return empty(), nil }
	broken := func(context.Context, func(any) error) (any, error) {
		return nil, errors.New("cannot open /proc/7/ns/ipc")
	}
	hung := func(ctx context.Context, _ func(any) error) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, start := range map[string]ttrpc.Method{"hangs": hung, "fails": broken} {
		wait := func(ctx context.Context, unmarshal func(any) error) (any, error) {
			var r task.WaitRequest
			if err := unmarshal(&r); err != nil || r.ExecID != "" {
				return hung(ctx, nil)
			}
			return &task.WaitResponse{ExitStatus: 1}, nil
		}
		c := dialShim(t, map[string]ttrpc.Method{"Exec": fine, "Start": start, "Kill": fine, "Wait": wait})
		undone := make(chan func(), 1)
		s := &session{
			conn: c, id: "c", execID: "e", ownKernel: true, background: func(undo func()) { undone <- undo },
		}
		begin := time.Now()
		err := s.startCommand(t.Context(), &specs.Process{}, process.Process{})
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "has exited") {
			t.Errorf("%s: startCommand = %v, want a failed precondition: has exited", name, err)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("%s: startCommand took %v, want it to end with the container", name, took)
		}
		if len(undone) == 0 {
			t.Errorf("%s: nothing kills the command in the background", name)
		}
	}
}

// TestStartIsNotCutShort: a command whose session ends while the shim starts it is killed once it has been started. The
// error is the reason of the end.
func TestStartIsNotCutShort(t *testing.T) {
	started, ended := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	gone := errors.New("the client is gone")
	over, hangUp := context.WithCancelCause(t.Context())
	defer hangUp(nil)
	c := dialShim(t, map[string]ttrpc.Method{
		"Exec": func(context.Context, func(any) error) (any, error) { return empty(), nil },
		"Start": func(ctx context.Context, _ func(any) error) (any, error) {
			hangUp(gone)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				t.Error("the context of Start ended before the shim answered")
			}
			close(started)
			return &task.StartResponse{}, nil
		},
		"Kill": func(context.Context, func(any) error) (any, error) {
			select {
			case <-started:
				end()
			default:
				t.Error("Kill came before the end of Start, want it after")
			}
			return empty(), nil
		},
		"Wait": func(context.Context, func(any) error) (any, error) {
			<-ended
			return &task.WaitResponse{ExitStatus: 137}, nil
		},
	})
	s := &session{conn: c, id: "c", execID: "e", ownKernel: true, background: func(func()) {}}
	if err := s.startCommand(over, &specs.Process{}, process.Process{}); !errors.Is(err, gone) {
		t.Errorf("startCommand = %v, want %v", err, gone)
	}
	select {
	case <-ended:
	default:
		t.Error("the command was not killed, want a kill request")
	}
}

// TestCommandOfSandboxIsKilledByShim: shims of virtual machines report the hypervisor's pid for a command, as Kata's
// does. A command whose time is over is killed by the shim; the hypervisor, with the pod in it, continues. The same
// holds for the first processes of the pod and of the container in the host's kernel.
func TestCommandOfSandboxIsKilledByShim(t *testing.T) {
	for name, c := range map[string]struct {
		ownKernel bool
		// first is true if the session knows the process as a first one.
		first bool
		dies  bool
	}{
		"in a kernel of its own":                  {ownKernel: true},
		"first process of pod or container":       {first: true},
		"a process of the command, host's kernel": {dies: true},
	} {
		t.Run(name, func(t *testing.T) {
			reported := startChild(t)
			over, timeUp := context.WithCancel(t.Context())
			s := killedSession(t, uint32(reported.Pid), timeUp)
			s.ownKernel = c.ownKernel
			if c.first {
				s.first = []process.Process{{}, reported}
			}
			self, err := process.Identify(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.startCommand(over, &specs.Process{}, self); !errors.Is(err, context.Canceled) {
				t.Errorf("startCommand = %v, want %v", err, context.Canceled)
			}
			if lives := reported.Alive(); lives == c.dies {
				t.Errorf("the process that the shim reports lives: %v, want %v", lives, !c.dies)
			}
		})
	}
}

// startChild starts a process that does nothing, until the end of the test.
func startChild(t *testing.T) process.Process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	p, err := process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// killedSession is a session whose shim calls started and reports that pid when it has started the command, and kills
// the command when asked to.
func killedSession(t *testing.T, pid uint32, started func()) *session {
	t.Helper()
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	c := dialShim(t, map[string]ttrpc.Method{
		"Exec": func(context.Context, func(any) error) (any, error) { return empty(), nil },
		"Start": func(context.Context, func(any) error) (any, error) {
			started()
			return &task.StartResponse{Pid: pid}, nil
		},
		"Kill": func(context.Context, func(any) error) (any, error) { end(); return empty(), nil },
		"Wait": func(ctx context.Context, _ func(any) error) (any, error) {
			select {
			case <-ended:
			case <-ctx.Done():
			}
			return &task.WaitResponse{ExitStatus: 137}, nil
		},
	})
	return &session{conn: c, id: "c", execID: "e", background: func(func()) {}}
}

// TestInputWaitsForItsReader: the shim of runc opens the pipe of the input after it has said that the command is
// started. The input does not end before that, or it would be lost.
func TestInputWaitsForItsReader(t *testing.T) {
	ended := make(chan struct{})
	c := dialShim(t, map[string]ttrpc.Method{"CloseIO": func(context.Context, func(any) error) (any, error) {
		close(ended)
		return empty(), nil
	}})
	path := filepath.Join(t.TempDir(), "stdin")
	if err := fifo.Make(path); err != nil {
		t.Fatal(err)
	}
	w, err := fifo.Write(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString("input"); err != nil {
		t.Fatal(err)
	}
	s := &session{conn: c, id: "c", execID: "e", stdin: w}
	go s.closeInput(t.Context())
	select {
	case <-ended:
		t.Fatal("the input ended before it had a reader")
	case <-time.After(100 * time.Millisecond):
	}
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "input" {
		t.Errorf("read %q, %v, want the input and its end", got, err)
	}
	<-ended
}
