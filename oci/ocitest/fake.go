package ocitest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// Fake is a handler in memory. Its containers survive the Runtime's user, as real ones do: give the same Fake
// to the engine before and after a "restart". It starts no goroutine and waits only on channels, timers and
// contexts, so it can be used in a synctest bubble.
//
// It runs the few commands that the suite uses (see parse); Exit ends a container from outside.
type Fake struct {
	// Before, if set, is called at the start of each verb but Ready and Features, with the verb's name in lower
	// case and the container's id; After when it has succeeded. An error takes the place of the verb's own, so
	// Before fails it without and After with its effect. Both may block, and are called without locks.
	// They must be set before the Fake is used.
	Before, After func(ctx context.Context, verb, id string) error
	// Answer, if set, answers ExecSync.
	Answer func(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error)
	// Unready is what Ready says.
	Unready error

	mu         sync.Mutex
	containers map[string]*fakeContainer
	pid        int
	calls      []string
}

// NewFake returns a handler without containers.
func NewFake() *Fake {
	// Pids above the kernel's limit: nobody can hit a real process by mistake.
	return &Fake{containers: map[string]*fakeContainer{}, pid: 1 << 23}
}

// FakeHarness is the Harness of a new Fake.
func FakeHarness(t interface{ TempDir() string }) *Harness {
	f := NewFake()
	return &Harness{New: func() Runtime { return f }, Spec: FakeSpec, LogDir: t.TempDir()}
}

// FakeSpec is the config.json of a container that runs the command.
func FakeSpec(args ...string) *specs.Spec {
	return &specs.Spec{Version: "1.0.2", Process: &specs.Process{Args: args, Cwd: "/"}}
}

// fakeContainer is one container; done is closed when it has ended.
type fakeContainer struct {
	req     oci.CreateRequest
	process oci.Process
	status  oci.Status
	program program
	timer   *time.Timer
	exit    oci.Exit
	done    chan struct{}
	res     *specs.LinuxResources
}

// Ready implements Runtime.
func (f *Fake) Ready() error { return f.Unready }

// Features implements Runtime: everything.
func (f *Fake) Features() oci.Features {
	return oci.Features{Version: "fake version 1", OCIVersion: "1.2.0", RecursiveReadOnly: true, UserNamespaces: true}
}

// do runs one verb between the hooks, with the lock held.
func (f *Fake) do(ctx context.Context, verb, id string, act func() error) error {
	if err := checkFakeID(id); err != nil {
		return err
	}
	if f.Before != nil {
		if err := f.Before(ctx, verb, id); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	f.mu.Lock()
	f.calls = append(f.calls, verb+" "+id)
	err := act()
	f.mu.Unlock()
	if err != nil || f.After == nil {
		return err
	}
	return f.After(ctx, verb, id)
}

// with runs one verb on a container that must exist.
func (f *Fake) with(ctx context.Context, verb, id string, act func(*fakeContainer) error) error {
	return f.do(ctx, verb, id, func() error {
		c := f.containers[id]
		if c == nil {
			return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
		}
		return act(c)
	})
}

// Create implements Runtime.
func (f *Fake) Create(ctx context.Context, req oci.CreateRequest) (oci.Process, error) {
	var p oci.Process
	err := f.do(ctx, "create", req.ID, func() error {
		if f.containers[req.ID] != nil {
			return fmt.Errorf("container %s: %w", req.ID, errdefs.ErrAlreadyExists)
		}
		prog, err := parse(req.Spec.Process.Args)
		if err != nil {
			return fmt.Errorf("create container: %w", err)
		}
		if req.LogPath != "" {
			if err := appendFile(req.LogPath, ""); err != nil {
				return err
			}
		}
		f.pid++
		p = oci.Process{Pid: f.pid, Start: uint64(f.pid)}
		f.containers[req.ID] = &fakeContainer{req: req, process: p, status: oci.Created, program: prog, done: make(chan struct{})}
		return nil
	})
	return p, err
}

// Start implements Runtime.
func (f *Fake) Start(ctx context.Context, id string) error {
	return f.with(ctx, "start", id, func(c *fakeContainer) error {
		if c.status != oci.Created {
			return fmt.Errorf("container %s is %s: %w", id, c.status, errdefs.ErrFailedPrecondition)
		}
		c.status = oci.Running
		if c.program.output != "" && c.req.LogPath != "" {
			line := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " stdout F " + c.program.output
			if err := appendFile(c.req.LogPath, line); err != nil {
				return err
			}
		}
		if c.program.lasts <= 0 {
			c.end(c.program.code)
			return nil
		}
		c.timer = time.AfterFunc(c.program.lasts, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			c.end(c.program.code)
		})
		return nil
	})
}

// Signal implements Runtime. As for the first process of a PID namespace, what the command does not handle
// has no effect, but SIGKILL has.
func (f *Fake) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	return f.do(ctx, "signal", id, func() error {
		c := f.containers[id]
		switch {
		case c == nil || c.status == oci.Stopped:
		case sig == syscall.SIGKILL:
			c.end(128 + int32(sig))
		case sig == c.program.trap && sig != 0 && c.status == oci.Running:
			c.end(c.program.trapped)
		}
		return nil
	})
}

// Delete implements Runtime.
func (f *Fake) Delete(ctx context.Context, id string) error {
	return f.do(ctx, "delete", id, func() error {
		if c := f.containers[id]; c != nil {
			c.end(128 + int32(syscall.SIGKILL))
			delete(f.containers, id)
		}
		return nil
	})
}

// State implements Runtime.
func (f *Fake) State(ctx context.Context, id string) (oci.State, error) {
	s := oci.State{Status: oci.Absent}
	err := f.do(ctx, "state", id, func() error {
		if c := f.containers[id]; c != nil {
			s = oci.State{Status: c.status, Process: c.process}
		}
		return nil
	})
	return s, err
}

// Wait implements Runtime.
func (f *Fake) Wait(ctx context.Context, id string) (oci.Exit, error) {
	var c *fakeContainer
	if err := f.with(ctx, "wait", id, func(found *fakeContainer) error { c = found; return nil }); err != nil {
		return oci.Exit{}, err
	}
	select {
	case <-ctx.Done():
		return oci.Exit{}, context.Cause(ctx)
	case <-c.done:
		return c.exit, nil
	}
}

// Update implements Runtime.
func (f *Fake) Update(ctx context.Context, id string, r *specs.LinuxResources) error {
	return f.with(ctx, "update", id, func(c *fakeContainer) error {
		c.res = r
		return nil
	})
}

// ReopenLog implements Runtime.
func (f *Fake) ReopenLog(ctx context.Context, id string) error {
	return f.with(ctx, "reopen", id, func(c *fakeContainer) error {
		switch {
		case c.status == oci.Stopped:
			return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
		case c.req.LogPath == "":
			return nil
		}
		return appendFile(c.req.LogPath, "")
	})
}

// Pause implements Runtime.
func (f *Fake) Pause(ctx context.Context, id string) error {
	return f.with(ctx, "pause", id, func(c *fakeContainer) error { return c.freeze(oci.Running, oci.Paused) })
}

// Resume implements Runtime.
func (f *Fake) Resume(ctx context.Context, id string) error {
	return f.with(ctx, "resume", id, func(c *fakeContainer) error { return c.freeze(oci.Paused, oci.Running) })
}

func (c *fakeContainer) freeze(from, to oci.Status) error {
	if c.status != from && c.status != to {
		return fmt.Errorf("container is %s: %w", c.status, errdefs.ErrFailedPrecondition)
	}
	c.status = to
	return nil
}

// end makes the container end now, once; the Fake's lock is held.
func (c *fakeContainer) end(code int32) {
	c.endAs(oci.Exit{Code: code, At: time.Now(), Known: true})
}

func (c *fakeContainer) endAs(e oci.Exit) {
	if c.status == oci.Stopped {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.status, c.exit = oci.Stopped, e
	close(c.done)
}

// Exit ends a container with whatever exit the test wants, for example one that is not Known.
func (f *Fake) Exit(id string, e oci.Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[id]; c != nil {
		c.endAs(e)
	}
}

// IDs are the containers that exist, sorted: none, if nothing leaked.
func (f *Fake) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.containers))
	for id := range f.containers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Calls are the verbs that had an effect or were refused by the Fake itself, each "verb id", in order.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Request is what the container was created with, and Resources what Update set last.
func (f *Fake) Request(id string) (req oci.CreateRequest, res *specs.LinuxResources, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil {
		return oci.CreateRequest{}, nil, false
	}
	return c.req, c.res, true
}

func appendFile(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text)
	return err
}
