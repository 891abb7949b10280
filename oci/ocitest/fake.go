package ocitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/logfile"
)

// Fake is a handler in memory. Its containers outlive the engine that drives it, as real ones outlive the daemon: a
// restarted engine is given a Reopen of it. It waits only on channels, timers and contexts, so it can be used in a
// synctest bubble.
//
// It runs the few commands that the suite uses (see parse); Exit ends a container from outside.
type Fake struct {
	// Before, if set, is called at the start of each verb but Ready and Features, with the verb in lower case
	// ("create", "signal terminated") and the container's id; After when the verb has succeeded. An error replaces the
	// verb's own result, so Before fails a verb without its effect and After with it. Both are called without locks and
	// may block or end their goroutine. Set them before the Fake is used.
	Before, After func(ctx context.Context, verb, id string) error
	// Answer, if set, answers ExecSync.
	Answer func(ctx context.Context, req oci.ExecRequest) (oci.ExecResult, error)
	// Unready is returned by Ready.
	Unready error

	*fakeState
}

// fakeState is shared by all Fakes that Reopen returns.
type fakeState struct {
	bundles string

	mu         sync.Mutex // guards the rest
	containers map[string]*fakeContainer
	pid        int
	calls      []string
	execs      []oci.ExecRequest
	exits      map[string]oci.Exit
}

// NewFake returns a handler without containers. Their bundles are made in the directory bundles, which need not exist.
func NewFake(bundles string) *Fake {
	// Pids above the kernel's limit: a signal sent by mistake reaches no process of this machine.
	return &Fake{fakeState: &fakeState{
		bundles: bundles, containers: map[string]*fakeContainer{}, exits: map[string]oci.Exit{}, pid: 1 << 23,
	}}
}

// Reopen returns a Fake with the same containers and without hooks, as a restarted daemon opens the handler.
func (f *Fake) Reopen() *Fake { return &Fake{fakeState: f.fakeState} }

// FakeHarness is the Harness of a new Fake.
func FakeHarness(t interface{ TempDir() string }) *Harness {
	f := NewFake(t.TempDir())
	return &Harness{
		New: func() Runtime { return f.Reopen() }, Spec: FakeSpec, LogDir: t.TempDir(), Bundles: f.bundles,
	}
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
	ended   func(oci.Exit)
	done    chan struct{}
	res     *specs.LinuxResources
}

// Ready implements Runtime.
func (f *Fake) Ready() error { return f.Unready }

// Features implements Runtime: everything.
func (f *Fake) Features() oci.Features {
	return oci.Features{
		Version: "fake version 1", OCIVersion: "1.2.0", RecursiveReadOnly: true, UserNamespaces: true,
		Checkpoints: oci.Checkpoints{Pods: true, Containers: true},
	}
}

// hooked runs one verb between the hooks. act takes the lock itself.
func (f *Fake) hooked(ctx context.Context, verb, id string, act func() error) error {
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
	f.mu.Unlock()
	if err := act(); err != nil || f.After == nil {
		return err
	}
	return f.After(ctx, verb, id)
}

// do runs one verb between the hooks, with the lock held.
func (f *Fake) do(ctx context.Context, verb, id string, act func() error) error {
	return f.hooked(ctx, verb, id, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return act()
	})
}

// with runs one verb on a container that must exist, with the lock held.
func (f *Fake) with(ctx context.Context, verb, id string, act func(*fakeContainer) error) error {
	return f.do(ctx, verb, id, func() error { return f.find(id, act) })
}

// find runs act on a container that must exist; the lock is held.
func (f *Fake) find(id string, act func(*fakeContainer) error) error {
	c := f.containers[id]
	if c == nil {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound)
	}
	return act(c)
}

// Create implements Runtime. As with the real handlers, the bundle of a creation that failed remains for Delete.
func (f *Fake) Create(ctx context.Context, req oci.CreateRequest) (oci.Process, error) {
	var p oci.Process
	err := f.do(ctx, "create", req.ID, func() error {
		if err := f.writeBundle(req); err != nil {
			return err
		}
		prog, err := parse(req.Spec.Process.Args)
		if err != nil {
			return fmt.Errorf("create container: %w", err)
		}
		if req.Log != (logfile.Log{}) {
			if err := appendLog(req.Log, ""); err != nil {
				return err
			}
		}
		if req.Image == "" || fileExists(req.Image, gvisorImage) {
			p = f.newProcess()
		}
		f.containers[req.ID] = &fakeContainer{
			req: req, process: p, status: oci.Created, program: prog, done: make(chan struct{}),
			ended: func(e oci.Exit) { f.exits[req.ID] = e },
		}
		return nil
	})
	return p, err
}

// newProcess returns a process that no other container has; the lock is held.
func (f *Fake) newProcess() oci.Process {
	f.pid++
	return oci.Process{Pid: f.pid, Start: uint64(f.pid)}
}

// restore gives a restored container its process; the lock is held.
func (f *Fake) restore(c *fakeContainer) error {
	switch {
	case c.req.Image == "", fileExists(c.req.Image, gvisorImage):
		return nil
	case !fileExists(c.req.Image, criuImage):
		return fmt.Errorf("no images in %s", c.req.Image)
	}
	c.process = f.newProcess()
	return nil
}

func fileExists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// writeBundle makes the container's bundle, which holds its config.json.
func (f *Fake) writeBundle(req oci.CreateRequest) error {
	if err := os.MkdirAll(f.bundles, 0o700); err != nil {
		return err
	}
	dir := filepath.Join(f.bundles, req.ID)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("container %s: %w", req.ID, errdefs.ErrAlreadyExists)
	} else if err != nil {
		return err
	}
	config, err := json.Marshal(req.Spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
}

// Start implements Runtime.
func (f *Fake) Start(ctx context.Context, id string) error {
	return f.with(ctx, "start", id, func(c *fakeContainer) error {
		if c.status != oci.Created {
			return fmt.Errorf("container %s is %s: %w", id, c.status, errdefs.ErrFailedPrecondition)
		}
		if err := f.restore(c); err != nil {
			return fmt.Errorf("restore container: %w", err)
		}
		c.status = oci.Running
		if c.program.output != "" && c.req.Log != (logfile.Log{}) {
			line := time.Now().UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + " stdout F " + c.program.output
			if err := appendLog(c.req.Log, line); err != nil {
				return err
			}
		}
		switch {
		case c.program.lasts == forever: // until a signal
			return nil
		case c.program.copies && c.req.Stdin: // until an attached client closes its input
			return nil
		case c.program.lasts <= 0:
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
	return f.do(ctx, "signal "+sig.String(), id, func() error {
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
		return os.RemoveAll(filepath.Join(f.bundles, id))
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
func (f *Fake) Wait(ctx context.Context, id string) (exit oci.Exit, err error) {
	err = f.hooked(ctx, "wait", id, func() error {
		var done chan struct{}
		f.mu.Lock()
		err := f.find(id, func(c *fakeContainer) error { done = c.done; return nil })
		c := f.containers[id]
		f.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-done:
			exit = c.exit
			return nil
		}
	})
	return exit, err
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
		case c.req.Log == (logfile.Log{}):
			return nil
		}
		return appendLog(c.req.Log, "")
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

// end makes the container end now, once; the lock is held.
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
	c.ended(e)
	close(c.done)
}

// Exit ends a container with the exit e, for example one that is not Known.
func (f *Fake) Exit(id string, e oci.Exit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.containers[id]; c != nil {
		c.endAs(e)
	}
}

// Exits returns how containers have ended, by id, also of those that were deleted.
func (f *Fake) Exits() map[string]oci.Exit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.exits)
}

// IDs returns the containers that exist, sorted: none if nothing leaked.
func (f *Fake) IDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.containers))
}

// Running returns how many containers have a process: those that have not stopped.
func (f *Fake) Running() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.status != oci.Stopped {
			n++
		}
	}
	return n
}

// Alive returns the containers that Running counts, with the pods that they are in.
func (f *Fake) Alive() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	alive := map[string]string{}
	for id, c := range f.containers {
		if c.status != oci.Stopped {
			alive[id] = c.req.PodID
		}
	}
	return alive
}

// Execs returns the requests of ExecSync and Exec that ran a command, in order. Of Exec they have ID and Process only.
func (f *Fake) Execs() []oci.ExecRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.execs)
}

// Reboot ends and forgets all containers, as a reboot of the node does with processes and with what is in /run.
func (f *Fake) Reboot() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		c.end(128 + int32(syscall.SIGKILL))
	}
	clear(f.containers)
	return os.RemoveAll(f.bundles)
}

// Calls returns the verbs that had an effect or were refused by the Fake itself, each "verb id", in order.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// Request returns what the container was created with and what Update set last.
func (f *Fake) Request(id string) (req oci.CreateRequest, res *specs.LinuxResources, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil {
		return oci.CreateRequest{}, nil, false
	}
	return c.req, c.res, true
}

func appendLog(log logfile.Log, text string) error {
	file, err := log.Open()
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.WriteString(text)
	return err
}
