package ocitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/test/sample"
)

// Suite runs every test of the behaviour that the engine relies on. The commands it uses are true, false,
// echo, cat, sleep, `sh -c "exit N"` and Trap: a fake must know them.
func Suite(t *testing.T, newHarness NewHarness) { suite(t, newHarness, 1) }

// SomeOfSuite runs every third test of the suite, another third on another commit: for further runtimes of a driver
// whose first one runs all.
func SomeOfSuite(t *testing.T, newHarness NewHarness) { suite(t, newHarness, 3) }

func suite(t *testing.T, newHarness NewHarness, every int) {
	tests := []struct {
		name string
		run  func(*testing.T, *Harness)
	}{
		{"Ready", testReady},
		{"Life", testLife},
		{"Bundle", testBundle},
		{"ExitCodes", testExitCodes},
		{"Signal", testSignal},
		{"StopSignal", testStopSignal},
		{"KillCreated", testKillCreated},
		{"DeleteAnyState", testDeleteAnyState},
		{"DeleteWakesWaiters", testDeleteWakesWaiters},
		{"CreateTwice", testCreateTwice},
		{"CommandNotFound", testCommandNotFound},
		{"BadID", testBadID},
		{"Unknown", testUnknown},
		{"WaitContext", testWaitContext},
		{"Restart", testRestart},
		{"Exec", testExec},
		{"ExecTimeout", testExecTimeout},
		{"ExecRefused", testExecRefused},
		{"ExecStopped", testExecStopped},
		{"ExecStreams", testExecStreams},
		{"ExecBrokenInput", testExecBrokenInput},
		{"ExecStreamsRefused", testExecStreamsRefused},
		{"Attach", testAttach},
		{"AttachInput", testAttachInput},
		{"Log", testLog},
		{"ReopenLog", testReopenLog},
		{"Update", testUpdate},
		{"Pause", testPause},
	}
	for _, test := range sample.Of(every, tests, t.Name()) {
		t.Run(test.name, func(t *testing.T) { test.run(t, newHarness(t)) })
	}
}

// limit ends a test that hangs.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// create creates a container that the test's end deletes.
func create(t *testing.T, r Runtime, req oci.CreateRequest) oci.Process {
	t.Helper()
	ctx := limit(t)
	t.Cleanup(func() {
		if err := r.Delete(context.WithoutCancel(ctx), req.ID); err != nil {
			t.Errorf("delete %s: %v", req.ID, err)
		}
	})
	p, err := r.Create(ctx, req)
	must(t, "create", err)
	return p
}

// run creates and starts a container.
func run(t *testing.T, h *Harness, r Runtime, id string, args ...string) oci.Process {
	t.Helper()
	p := create(t, r, oci.CreateRequest{ID: id, Spec: h.Spec(args...)})
	must(t, "start", r.Start(limit(t), id))
	return p
}

func wantState(t *testing.T, r Runtime, id string, want oci.Status) oci.State {
	t.Helper()
	s, err := r.State(limit(t), id)
	must(t, "state", err)
	if s.Status != want {
		t.Fatalf("container %s is %s, want %s", id, s.Status, want)
	}
	return s
}

func testReady(t *testing.T, h *Harness) {
	r := h.New()
	must(t, "ready", r.Ready())
	if f := r.Features(); f.Version == "" || !strings.HasPrefix(f.OCIVersion, "1.") {
		t.Errorf("Features = %+v, want a version and an OCI version 1.x", f)
	}
}

func testLife(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	wantState(t, r, "life", oci.Absent)
	p := create(t, r, oci.CreateRequest{ID: "life", Spec: h.Spec("sleep", "1000")})
	if p.Pid <= 0 || p.Start == 0 {
		t.Errorf("Create = %+v, want a pid and a start time", p)
	}
	if s := wantState(t, r, "life", oci.Created); s.Process != p {
		t.Errorf("State has process %+v, want that of Create, %+v", s.Process, p)
	}
	must(t, "start", r.Start(ctx, "life"))
	if s := wantState(t, r, "life", oci.Running); s.Process != p {
		t.Errorf("State has process %+v, want that of Create, %+v", s.Process, p)
	}
	before := time.Now()
	must(t, "kill", r.Signal(ctx, "life", syscall.SIGKILL))
	exit, err := r.Wait(ctx, "life")
	must(t, "wait", err)
	if exit.Code != 137 || !exit.Known || exit.OOM {
		t.Errorf("exit %+v, want 137, known", exit)
	}
	if exit.At.Before(before.Add(-time.Second)) || exit.At.After(time.Now().Add(time.Second)) {
		t.Errorf("exit at %s, want the time of the kill, %s", exit.At, before)
	}
	wantState(t, r, "life", oci.Stopped)
	must(t, "delete", r.Delete(ctx, "life"))
	wantState(t, r, "life", oci.Absent)
}

// testBundle: the engine reads config.json of a container, and finds containers without a record by their bundles.
func testBundle(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	dir := filepath.Join(h.Bundles, "bundle")
	create(t, r, oci.CreateRequest{ID: "bundle", Spec: h.Spec("sleep", "1000")})
	var config specs.Spec
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	must(t, "read config.json", errors.Join(err, json.Unmarshal(data, &config)))
	if got := strings.Join(config.Process.Args, " "); got != "sleep 1000" {
		t.Errorf("config.json has the command %q, want %q", got, "sleep 1000")
	}
	must(t, "delete", r.Delete(ctx, "bundle"))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("bundle after Delete: %v, want it removed", err)
	}
	// As left by a crash before the container's record was written.
	must(t, "make bundle", os.MkdirAll(dir, 0o700))
	_, err = r.Create(ctx, oci.CreateRequest{ID: "bundle", Spec: h.Spec("sleep", "1000")})
	if !errdefs.IsAlreadyExists(err) {
		t.Errorf("Create over the bundle of a crash: %v, want already exists", err)
	}
	must(t, "delete what a crash left", r.Delete(ctx, "bundle"))
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("bundle of a crash after Delete: %v, want it removed", err)
	}
}

func testExitCodes(t *testing.T, h *Harness) {
	r := h.New()
	for i, tt := range []struct {
		args []string
		want int32
	}{
		{[]string{"true"}, 0},
		{[]string{"false"}, 1},
		{[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "exit 255"}, 255},
	} {
		id := fmt.Sprintf("exit-%d", i)
		run(t, h, r, id, tt.args...)
		exit, err := r.Wait(limit(t), id)
		must(t, "wait", err)
		if exit.Code != tt.want || !exit.Known {
			t.Errorf("%v: exit %+v, want %d", tt.args, exit, tt.want)
		}
	}
}

func testSignal(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "sig", "sleep", "1000")
	must(t, "no signal", r.Signal(ctx, "sig", 0))
	must(t, "kill", r.Signal(ctx, "sig", syscall.SIGKILL))
	_, err := r.Wait(ctx, "sig")
	must(t, "wait", err)
	must(t, "signal to an ended container", r.Signal(ctx, "sig", syscall.SIGTERM))
	must(t, "signal to an unknown container", r.Signal(ctx, "unknown", syscall.SIGTERM))
}

func testStopSignal(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	path := filepath.Join(h.LogDir, "trap.log")
	create(t, r, oci.CreateRequest{ID: "stop", Spec: h.Spec(Trap(42)...), Log: LogAt(path)})
	must(t, "start", r.Start(ctx, "stop"))
	exited := make(chan oci.Exit, 1)
	go func() {
		exit, _ := r.Wait(ctx, "stop")
		exited <- exit
	}()
	// Not before the shell has set its trap: until the process is the shell, a signal ends the runtime in its place.
	for logged, _ := os.ReadFile(path); !strings.Contains(string(logged), "ready"); logged, _ = os.ReadFile(path) {
		if err := ctx.Err(); err != nil {
			t.Fatalf("the trap is not set: %v, log %q", err, logged)
		}
		time.Sleep(5 * time.Millisecond)
	}
	must(t, "signal", r.Signal(ctx, "stop", syscall.SIGTERM))
	select {
	case exit := <-exited:
		if exit.Code != 42 || !exit.Known {
			t.Errorf("exit %+v, want 42", exit)
		}
	case <-ctx.Done():
		t.Fatal("the container runs still, want SIGTERM to end it")
	}
}

// testKillCreated: one SIGKILL ends a container that was not started, as it ends any other.
func testKillCreated(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	create(t, r, oci.CreateRequest{ID: "created", Spec: h.Spec("true")})
	must(t, "kill", r.Signal(ctx, "created", syscall.SIGKILL))
	exit, err := r.Wait(ctx, "created")
	must(t, "wait", err)
	if exit.Code == 0 {
		t.Errorf("exit = %+v, want a code other than 0", exit)
	}
	must(t, "delete", r.Delete(ctx, "created"))
	wantState(t, r, "created", oci.Absent)
}

func testDeleteAnyState(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	must(t, "delete an unknown container", r.Delete(ctx, "unknown"))

	create(t, r, oci.CreateRequest{ID: "created", Spec: h.Spec("true")})
	must(t, "delete a created container", r.Delete(ctx, "created"))

	run(t, h, r, "running", "sleep", "1000")
	must(t, "delete a running container", r.Delete(ctx, "running"))

	run(t, h, r, "paused", "sleep", "1000")
	must(t, "pause", r.Pause(ctx, "paused"))
	must(t, "delete a paused container", r.Delete(ctx, "paused"))

	for _, id := range []string{"created", "running", "paused"} {
		must(t, "delete again", r.Delete(ctx, id))
		wantState(t, r, id, oci.Absent)
	}
	run(t, h, r, "running", "true") // the name is free again
}

func testDeleteWakesWaiters(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "waited", "sleep", "1000")
	type answer struct {
		exit oci.Exit
		err  error
	}
	answers := make(chan answer, 3)
	for range cap(answers) {
		go func() {
			exit, err := r.Wait(ctx, "waited")
			answers <- answer{exit, err}
		}()
	}
	must(t, "delete", r.Delete(ctx, "waited"))
	for range cap(answers) {
		a := <-answers
		if errdefs.IsNotFound(a.err) {
			continue // it came after the end
		}
		if a.err != nil || a.exit.Code != 137 || !a.exit.Known {
			t.Errorf("wait gave %+v, %v; want 137", a.exit, a.err)
		}
	}
}

func testCreateTwice(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "twice", "sleep", "1000")
	_, err := r.Create(ctx, oci.CreateRequest{ID: "twice", Spec: h.Spec("true")})
	if !errdefs.IsAlreadyExists(err) {
		t.Errorf("second Create = %v, want already exists", err)
	}
	wantState(t, r, "twice", oci.Running)
}

func testCommandNotFound(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	for i, name := range []string{"no-such-command", "/no/such/command"} {
		id := fmt.Sprintf("missing-%d", i)
		_, err := r.Create(ctx, oci.CreateRequest{ID: id, Spec: h.Spec(name)})
		if err == nil {
			err = r.Start(ctx, id)
		}
		var c *oci.CommandError
		if !errors.Is(err, oci.ErrCommand) || !errors.As(err, &c) || c.Code != 127 || !strings.Contains(c.Text, name) {
			t.Errorf("%s: %v, want a CommandError with code 127 that names it", name, err)
		}
		must(t, "delete", r.Delete(ctx, id))
		wantState(t, r, id, oci.Absent)
	}
}

func testBadID(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	for _, id := range []string{"", ".", "..", "a/b", "../x", "-rf", "a b", "a\n", strings.Repeat("a", 300)} {
		_, errCreate := r.Create(ctx, oci.CreateRequest{ID: id, Spec: h.Spec("true")})
		_, errState := r.State(ctx, id)
		_, errWait := r.Wait(ctx, id)
		_, errExec := r.ExecSync(ctx, oci.ExecRequest{ID: id})
		for verb, err := range map[string]error{
			"create": errCreate, "state": errState, "wait": errWait, "exec": errExec,
			"start": r.Start(ctx, id), "signal": r.Signal(ctx, id, 0), "delete": r.Delete(ctx, id),
			"update": r.Update(ctx, id, &specs.LinuxResources{}), "reopen": r.ReopenLog(ctx, id),
			"pause": r.Pause(ctx, id), "resume": r.Resume(ctx, id),
		} {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("%s of id %q = %v, want an invalid argument", verb, id, err)
			}
		}
	}
}

func testUnknown(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	_, errWait := r.Wait(ctx, "unknown")
	_, errExec := r.ExecSync(ctx, oci.ExecRequest{ID: "unknown", Process: process(h, "true")})
	for verb, err := range map[string]error{
		"start": r.Start(ctx, "unknown"), "wait": errWait, "exec": errExec,
		"update": r.Update(ctx, "unknown", &specs.LinuxResources{}), "reopen": r.ReopenLog(ctx, "unknown"),
		"pause": r.Pause(ctx, "unknown"), "resume": r.Resume(ctx, "unknown"),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s of an unknown container = %v, want not found", verb, err)
		}
	}
}

func testWaitContext(t *testing.T, h *Harness) {
	r := h.New()
	run(t, h, r, "endless", "sleep", "1000")
	ctx, cancel := context.WithTimeout(limit(t), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Wait(ctx, "endless"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Wait = %v, want %v", err, context.DeadlineExceeded)
	}
	wantState(t, r, "endless", oci.Running)
}

// testRestart lets another Runtime take over, as a restarted daemon does, in each state.
func testRestart(t *testing.T, h *Harness) {
	ctx := limit(t)
	first := h.New()
	create(t, first, oci.CreateRequest{ID: "created", Spec: h.Spec("sh", "-c", "exit 7")})
	p := run(t, h, first, "running", "sleep", "1000")
	run(t, h, first, "ended", "sh", "-c", "exit 9")
	_, err := first.Wait(ctx, "ended")
	must(t, "wait", err)

	second := h.New()
	wantState(t, second, "created", oci.Created)
	if s := wantState(t, second, "running", oci.Running); s.Process != p {
		t.Errorf("process after the restart = %+v, want %+v", s.Process, p)
	}
	wantState(t, second, "ended", oci.Stopped)
	must(t, "start", second.Start(ctx, "created"))
	must(t, "kill", second.Signal(ctx, "running", syscall.SIGKILL))
	for id, want := range map[string]int32{"created": 7, "running": 137, "ended": 9} {
		exit, err := h.New().Wait(ctx, id)
		must(t, "wait for "+id, err)
		if exit.Code != want || !exit.Known {
			t.Errorf("%s: exit %+v, want %d", id, exit, want)
		}
	}
}

func testUpdate(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "upd", "sleep", "1000")
	limit := int64(1 << 26)
	err := r.Update(ctx, "upd", &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})
	if h.SharedLimits {
		if !errors.Is(err, oci.ErrNoEffect) {
			t.Errorf("update in a sandbox with the limits of its pod = %v, want %v", err, oci.ErrNoEffect)
		}
		return
	}
	must(t, "update", err)
}

func testPause(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "frozen", "sleep", "1000")
	for range 2 {
		must(t, "pause", r.Pause(ctx, "frozen"))
		wantState(t, r, "frozen", oci.Paused)
	}
	_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "frozen", Process: process(h, "true")})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("ExecSync in a paused container = %v, want a failed precondition", err)
	}
	for range 2 {
		must(t, "resume", r.Resume(ctx, "frozen"))
		wantState(t, r, "frozen", oci.Running)
	}
}
