package runc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/conmon"
	"github.com/podd-project/podd/test/sample"
)

// each runs the test with every real runtime.
func each(t *testing.T, run func(*testing.T, *ocitest.Machine)) {
	t.Helper()
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { run(t, ocitest.Real(t, name)) })
	}
}

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := contextWithLimit()
	t.Cleanup(cancel)
	return ctx
}

func contextWithLimit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// start runs a container that the test's end deletes.
func start(t testing.TB, r ocitest.Runtime, req oci.CreateRequest) process.Process {
	t.Helper()
	t.Cleanup(func() { must(t, "delete", r.Delete(context.Background(), req.ID)) })
	p, err := r.Create(limit(t), req)
	must(t, "create", err)
	must(t, "start", r.Start(limit(t), req.ID))
	return p
}

func sh(script string) []string { return []string{"sh", "-c", script} }

// members lists the processes in the cgroup of the container with this spec.
func members(t *testing.T, s *specs.Spec) []string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		b, err := os.ReadFile(filepath.Join(root, s.Linux.CgroupsPath, "cgroup.procs"))
		if err == nil {
			return strings.Fields(string(b))
		}
	}
	return nil
}

// TestStartOfWhatRuns: a daemon was killed after the runtime started the container and before it recorded that. The
// next daemon starts the running container.
func TestStartOfWhatRuns(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		start(t, m.New(), oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		must(t, "forget the start", os.Remove(filepath.Join(m.Config.RunDir, "c", "started")))
		r := m.New()
		must(t, "start again", r.Start(limit(t), "c"))
		if s, err := r.State(limit(t), "c"); err != nil || s.Status != oci.Running {
			t.Errorf("state = %+v, %v, want %s", s, err, oci.Running)
		}
	})
}

// errEnough ends commands that have got as far as the test wants, however long that took.
var errEnough = errors.New("enough")

// execUntil runs a script that makes the file /tmp/ready, and ends the exec then, as a timeout would.
func execUntil(t *testing.T, m *ocitest.Machine, r ocitest.Runtime, req oci.ExecRequest) oci.ExecResult {
	t.Helper()
	ready := filepath.Join(m.Rootfs, "tmp/ready")
	ctx, cancel := context.WithCancelCause(limit(t))
	go func() {
		for ctx.Err() == nil {
			if os.Remove(ready) == nil {
				cancel(errEnough)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	req.Timeout = 10 * time.Minute
	got, err := r.ExecSync(ctx, req)
	cancel(nil)
	if !errors.Is(err, errEnough) {
		t.Errorf("exec of %q = %v, want %v", req.Process.Args, err, errEnough)
	}
	return got
}

func TestExecTimeoutKillsTree(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, s := m.New(), m.Spec("sleep", "1000")
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		const ready = "true >/tmp/ready; "
		for _, script := range []string{
			ready + "sleep 1001",
			"sleep 1001 & sleep 1002 & " + ready + "sleep 1003",
			// sessions of their own: known by their parents, until these are gone
			"setsid sleep 1001 & setsid sh -c 'sleep 1002 & sleep 1003' & " +
				"until [ $(ps -o args | grep -c '^sleep 100') = 4 ]; do :; done; " + ready + "wait",
			"(sleep 1001 &) ; " + ready + "sleep 1002", // an orphan of the same session
			"trap '' TERM INT HUP; " + ready + "while :; do sleep 0.1; done",
		} {
			got := execUntil(t, m, r, oci.ExecRequest{ID: "c", Process: m.Spec(sh("echo started; " + script)...).Process})
			if string(got.Stdout) != "started\n" {
				t.Errorf("%s: output before the end = %q, want %q", script, got.Stdout, "started\n")
			}
			if left := members(t, s); len(left) != 1 {
				t.Errorf("%s: processes %v, want only the container's first", script, left)
			}
		}
		_, err := r.ExecSync(limit(t), oci.ExecRequest{
			ID: "c", Process: m.Spec("sleep", "1001").Process, Timeout: 300 * time.Millisecond,
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exec that times out = %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// daemonScript starts a daemon: forked twice, in a session of its own. It prints "away" and waits until the daemon
// runs.
const daemonScript = "(setsid sh -c 'echo away; exec sleep 2001' &); " +
	"while ! ps -o args | grep -q '^sleep 2001'; do :; done; "

func TestExecTimeoutKillsDaemons(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		if m.Config.Name == "crun" && !pureV2() {
			t.Skip("crun cannot put a command into a cgroup of one hierarchy of cgroup v1")
		}
		r, s := m.New(), m.Spec("sleep", "1000")
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		for _, script := range []string{
			daemonScript + "true >/tmp/ready; sleep 2002",
			"for i in 1 2 3; do (setsid sh -c 'while :; do (setsid sleep 0.01 &); done' &); done; true >/tmp/ready; sleep 2002",
		} {
			execUntil(t, m, r, oci.ExecRequest{ID: "c", Process: m.Spec(sh(script)...).Process})
			if left := members(t, s); len(left) != 1 {
				t.Errorf("%s: processes %v, want only the container's first", script, left)
			}
			wantNoGroups(t, s)
		}
	})
}

// TestExecLeavesDaemonsAlone: a command that ends in time may leave something running, in the container's own group.
func TestExecLeavesDaemonsAlone(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, s := m.New(), m.Spec("sleep", "1000")
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		got, err := r.ExecSync(limit(t), oci.ExecRequest{
			ID: "c", Process: m.Spec(sh(daemonScript + "exit 3")...).Process, Timeout: time.Minute,
		})
		must(t, "exec", err)
		if got.Code != 3 || string(got.Stdout) != "away\n" {
			t.Errorf("exec = %d, %q, %q, want 3, %q", got.Code, got.Stdout, got.Stderr, "away\n")
		}
		if left := members(t, s); len(left) != 2 {
			t.Errorf("processes = %v, want 2: the container's first and the one left behind", left)
		}
		wantNoGroups(t, s)
	})
}

// wantNoGroups wants no cgroups below the container's, in any hierarchy.
func wantNoGroups(t *testing.T, s *specs.Spec) {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		if below, _ := filepath.Glob(filepath.Join(root, s.Linux.CgroupsPath, "*", "cgroup.procs")); len(below) > 0 {
			t.Errorf("cgroups below the container's = %v, want none", below)
		}
	}
}

// pureV2 reports whether the machine has the unified hierarchy only.
func pureV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func TestExecReturnsThoughChildHoldsOutput(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		begin := time.Now()
		command := m.Spec(sh("echo out; echo err >&2; sleep 1000 & exit 7")...).Process
		got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: command})
		must(t, "exec", err)
		if got.Code != 7 || string(got.Stdout) != "out\n" || string(got.Stderr) != "err\n" {
			t.Errorf("exec = %d, %q, %q, want 7, %q, %q", got.Code, got.Stdout, got.Stderr, "out\n", "err\n")
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("exec took %s, want at most 30s", took)
		}
	})
}

func TestExecOutputCap(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		command := m.Spec(sh("yes | head -c 40000000; yes err | head -c 20000000 >&2; exit 5")...).Process
		got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: command})
		must(t, "exec", err)
		if got.Code != 5 || len(got.Stdout) != 16<<20 || len(got.Stderr) != 16<<20 {
			t.Errorf("exec = %d, %d and %d bytes, want 5, %d and %[4]d bytes",
				got.Code, len(got.Stdout), len(got.Stderr), 16<<20)
		}
		// An endless one keeps the cap.
		command = m.Spec(sh("yes | head -c 5000; true >/tmp/ready; yes")...).Process
		got = execUntil(t, m, r, oci.ExecRequest{ID: "c", Process: command, Limit: 1000})
		if len(got.Stdout) != 1000 {
			t.Errorf("endless output: %d bytes, want 1000", len(got.Stdout))
		}
	})
}

// TestRuntimeBinary: until it starts the command, a container's process runs the runtime's program, which a hostile
// image may have it open as /proc/self/exe (CVE-2019-5736). So that must be on a read-only mount, or a sealed copy; and
// it must be the runtime, not a loader that was told to run it.
func TestRuntimeBinary(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		t.Cleanup(func() { must(t, "delete", r.Delete(context.Background(), "c")) })
		p, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: m.Spec("true")})
		must(t, "create", err)
		exe, err := os.Open(fmt.Sprintf("/proc/%d/exe", p.Pid))
		must(t, "open", err)
		defer exe.Close()
		var fs unix.Statfs_t
		must(t, "statfs", unix.Fstatfs(int(exe.Fd()), &fs))
		seals, err := unix.FcntlInt(exe.Fd(), unix.F_GET_SEALS, 0)
		if sealed := err == nil && seals&unix.F_SEAL_WRITE != 0; !sealed && fs.Flags&unix.ST_RDONLY == 0 {
			t.Error("the container's process can write to its program, want a read-only mount or a sealed file")
		}
		program, err := io.ReadAll(exe)
		must(t, "read", err)
		if want, err := os.ReadFile(m.Config.Path); err != nil || !bytes.Equal(program, want) {
			t.Errorf("the container's process does not run %s (%v)", m.Config.Path, err)
		}
	})
}

func TestExecErrors(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		must(t, "write", os.WriteFile(filepath.Join(m.Rootfs, "bin/plain"), []byte("x"), 0o644))
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		for name, want := range map[string]int32{"/bin/plain": 126, "/tmp": 126, "/no/such": 127, "nosuch": 127} {
			_, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: m.Spec(name).Process})
			var c *oci.CommandError
			if !errors.As(err, &c) || c.Code != want {
				t.Errorf("exec %s: %v, want code %d", name, err, want)
			}
			_, err = r.Create(limit(t), oci.CreateRequest{ID: "d", Spec: m.Spec(name)})
			if !errors.As(err, &c) || c.Code != want {
				t.Errorf("create %s: %v, want code %d", name, err, want)
			}
			must(t, "delete", r.Delete(limit(t), "d"))
		}
	})
}

// TestExecInEndedContainer has the container end between podd's look at it and the runtime's.
func TestExecInEndedContainer(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		pid := filepath.Join(t.TempDir(), "pid")
		wrapper(t, m, "exec", fmt.Sprintf("kill -9 $(cat %s); sleep 0.5; "+
			"echo level=error msg='\"its cgroup is gone\"' >&2; exit 1", pid))
		r := m.New()
		p := start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		must(t, "write", os.WriteFile(pid, fmt.Append(nil, p.Pid), 0o600))
		_, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: m.Spec("true").Process})
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "cgroup is gone") {
			t.Errorf("ExecSync = %v, want %v with the runtime's reason", err, errdefs.ErrFailedPrecondition)
		}
	})
}

// TestExecLeavesNothing looks while the container lives, and the garbage collector does not clean up.
func TestExecLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := runc.New(m.Config)
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		must(t, "probe", r.Probe(limit(t)))
		defer debug.SetGCPercent(debug.SetGCPercent(-1))
		before, goroutines := descriptors(t), runtime.NumGoroutine()
		tty := m.Spec("true").Process
		tty.Terminal = true
		for range 20 {
			_, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: m.Spec("true").Process})
			must(t, "exec", err)
			_, err = r.Exec(limit(t), "c", m.Spec("cat").Process, oci.Streams{Stdin: strings.NewReader("x"), Stdout: io.Discard})
			must(t, "exec with streams", err)
			_, err = r.Exec(limit(t), "c", tty, oci.Streams{Stdin: strings.NewReader("x"), Stdout: io.Discard})
			must(t, "exec with a terminal", err)
		}
		if n := descriptors(t); n > before {
			t.Errorf("%d descriptors, want at most the %d from before", n, before)
		}
		for range 100 { // the last copies return by themselves
			if runtime.NumGoroutine() <= goroutines {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			t.Errorf("%d goroutines, want at most the %d from before", n, goroutines)
		}
		left, err := filepath.Glob(filepath.Join(m.Config.RunDir, "c", "exec*"))
		if err != nil || len(left) > 0 {
			t.Errorf("files of execs = %v, %v, want none", left, err)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, "descriptors", err)
	return len(entries)
}

// TestNoDescriptorLeaks lists the descriptors of a container and of an exec: 0, 1, 2 and that of ls itself.
func TestNoDescriptorLeaks(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path := m.New(), filepath.Join(m.LogDir, "fds.log")
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec(sh("ls /proc/self/fd; sleep 1000")...), Log: ocitest.LogAt(path)})
		got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: m.Spec("ls", "/proc/self/fd").Process})
		must(t, "exec", err)
		if want := "0\n1\n2\n3\n"; string(got.Stdout) != want {
			t.Errorf("descriptors of an exec = %q, want %q", got.Stdout, want)
		}
		for len(lines(t, path)) < 4 {
			time.Sleep(5 * time.Millisecond)
		}
		if got, want := fmt.Sprint(lines(t, path)), "[0 1 2 3]"; got != want {
			t.Errorf("descriptors of a container = %s, want %s", got, want)
		}
	})
}

// lines are the texts of logs that follow each other, partial records joined.
func lines(t *testing.T, paths ...string) (texts []string) {
	t.Helper()
	partial := map[string]string{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		must(t, "read log", err)
		for record := range strings.Lines(string(b)) {
			f := strings.SplitN(strings.TrimSuffix(record, "\n"), " ", 4)
			if len(f) != 4 {
				t.Fatalf("log record %q has %d fields, want 4", record, len(f))
			}
			partial[f[1]] += f[3]
			if f[2] == "F" {
				texts = append(texts, partial[f[1]])
				partial[f[1]] = ""
			}
		}
	}
	return texts
}

func TestMonitorKilled(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		type answer struct {
			exit oci.Exit
			err  error
		}
		answers := make(chan answer, 1)
		go func() {
			exit, err := r.Wait(limit(t), "c")
			answers <- answer{exit, err}
		}()
		killMonitor(t, m, "c")
		select {
		case a := <-answers:
			t.Fatalf("Wait returned %+v, %v after the death of the monitor, want it to wait", a.exit, a.err)
		case <-time.After(200 * time.Millisecond):
		}
		s, err := r.State(limit(t), "c")
		if err != nil || s.Status != oci.Running {
			t.Errorf("state without a monitor = %+v, %v, want %s", s, err, oci.Running)
		}
		must(t, "kill", r.Signal(limit(t), "c", syscall.SIGKILL))
		a := <-answers
		if a.err != nil || a.exit.Known || a.exit.Code != 255 {
			t.Errorf("exit = %+v, %v, want code 255, not known", a.exit, a.err)
		}
		if err := r.ReopenLog(limit(t), "c"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("reopen without a monitor = %v, want a failed precondition", err)
		}
	})
}

func killMonitor(t *testing.T, m *ocitest.Machine, id string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Config.RunDir, id, "conmon.pid"))
	must(t, "monitor's pid", err)
	var pid int
	_, err = fmt.Sscan(string(b), &pid)
	must(t, "monitor's pid", err)
	monitor, err := process.Identify(pid)
	must(t, "monitor", err)
	must(t, "kill monitor", monitor.Kill(limit(t)))
}

func TestRuntimeStateRemoved(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		for _, id := range []string{"a", "b"} {
			start(t, r, oci.CreateRequest{ID: id, Spec: m.Spec("sleep", "1000")})
		}
		must(t, "remove", os.RemoveAll(m.Config.Root))
		s, err := r.State(limit(t), "a")
		if err != nil || s.Status != oci.Running {
			t.Errorf("state = %+v, %v, want %s", s, err, oci.Running)
		}
		must(t, "delete a running one", r.Delete(limit(t), "a"))
		must(t, "kill", r.Signal(limit(t), "b", syscall.SIGKILL))
		exit, err := r.Wait(limit(t), "b")
		if err != nil || exit.Code != 137 || !exit.Known {
			t.Errorf("exit = %+v, %v, want code 137, known", exit, err)
		}
	})
}

// TestSignalWithoutBundle: a signal reaches a container whose bundle was removed, and no other container.
func TestSignalWithoutBundle(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		lost := start(t, r, oci.CreateRequest{ID: "lost", Spec: m.Spec("sleep", "1000")})
		other := start(t, r, oci.CreateRequest{ID: "other", Spec: m.Spec("sleep", "1000")})
		must(t, "remove bundle", os.RemoveAll(filepath.Join(m.Config.RunDir, "lost")))
		must(t, "kill", r.Signal(limit(t), "lost", syscall.SIGKILL))
		must(t, "wait", lost.Wait(limit(t)))
		must(t, "kill what is dead", r.Signal(limit(t), "lost", syscall.SIGKILL))
		must(t, "kill what never was", r.Signal(limit(t), "absent", syscall.SIGKILL))
		if !other.Alive() {
			t.Errorf("process %d of another container was killed, want it to run", other.Pid)
		}
		monitors, err := r.(*runc.Runtime).List(limit(t))
		must(t, "find", err)
		if slices.Contains(monitors, "lost") {
			must(t, "reap", r.(*runc.Runtime).Destroy(limit(t), "lost"))
		}
		must(t, "delete", r.Delete(limit(t), "lost"))
	})
}

// TestDeleteIncomplete deletes what a daemon that died in the middle leaves.
func TestDeleteIncomplete(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		bundle := func(id, file string) string { return filepath.Join(m.Config.RunDir, id, file) }
		for id, damage := range map[string]func(id string) error{
			"norecord":  func(id string) error { return os.Remove(bundle(id, "state.json")) },
			"badrecord": func(id string) error { return os.WriteFile(bundle(id, "state.json"), []byte("{"), 0o600) },
			"norecord-nomonitor": func(id string) error {
				killMonitor(t, m, id)
				return os.Remove(bundle(id, "state.json"))
			},
			"noconfig": func(id string) error { return os.Remove(bundle(id, "config.json")) },
			"nobundle": func(id string) error { killMonitor(t, m, id); return os.RemoveAll(bundle(id, "")) },
			"badstate": func(id string) error {
				for _, name := range []string{"state.json", "status"} { // runc, crun
					path := filepath.Join(m.Config.Root, id, name)
					if _, err := os.Stat(path); err == nil {
						must(t, "damage", os.WriteFile(path, nil, 0o600))
					}
				}
				return nil
			},
		} {
			start(t, r, oci.CreateRequest{ID: id, Spec: m.Spec("sleep", "1000")})
			must(t, id, damage(id))
			for range 2 {
				if err := r.Delete(limit(t), id); err != nil {
					t.Errorf("delete %s: %v", id, err)
				}
			}
			if s, err := r.State(limit(t), id); err != nil || s.Status != oci.Absent {
				t.Errorf("%s: state = %+v, %v, want %s", id, s, err, oci.Absent)
			}
		}
		must(t, "mkdir", os.MkdirAll(bundle("empty", ""), 0o700))
		must(t, "delete an empty bundle", r.Delete(limit(t), "empty"))
	})
}

// wrapper writes a runtime that runs the script first if it is called with the verb, and then executes the real one.
func wrapper(t *testing.T, m *ocitest.Machine, verb, script string) {
	t.Helper()
	path := filepath.Join(m.LogDir, "runtime-"+filepath.Base(m.Config.Path)) // also of another wrapper
	text := fmt.Sprintf("#!/bin/sh\nfor a; do [ \"$a\" = %s ] && { %s; }; done\nexec %s \"$@\"\n", verb, script,
		m.Config.Path)
	must(t, "write wrapper", os.WriteFile(path, []byte(text), 0o755))
	m.Config.Path = path
}

func TestCreateHangs(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		wrapper(t, m, "create", "sleep 1000 & sleep 1001")
		m.Config.CreateTimeout = 300 * time.Millisecond
		r := m.New()
		begin := time.Now()
		_, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: m.Spec("true")})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create = %v, want %v", err, context.DeadlineExceeded)
		}
		gone := errors.New("caller is gone")
		ctx, cancel := context.WithCancelCause(limit(t))
		go func() { // as if conmon were killed after its fork, before it writes the file
			defer cancel(gone)
			file := filepath.Join(m.Config.RunDir, "d", "conmon.pid")
			for ctx.Err() == nil && os.Remove(file) != nil {
				time.Sleep(time.Millisecond)
			}
		}()
		if _, err := r.Create(ctx, oci.CreateRequest{ID: "d", Spec: m.Spec("true")}); !errors.Is(err, gone) &&
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cancelled create = %v, want %v", err, gone)
		}
		if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("both creations took %s, want at most 30s", took)
		}
		must(t, "delete", r.Delete(limit(t), "c"))
		must(t, "delete", r.Delete(limit(t), "d"))
	})
}

// TestCreateHangsAfterwards lets the runtime make the container and then hang.
func TestCreateHangsAfterwards(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		wrapper(t, m, "create", m.Config.Path+` "$@"; sleep 1000`)
		m.Config.CreateTimeout = time.Second
		r, s := m.New(), m.Spec("true")
		_, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: s})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create = %v, want %v", err, context.DeadlineExceeded)
		}
		must(t, "delete", r.Delete(limit(t), "c"))
	})
}

func TestRuntimeComplaint(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, s := m.New(), m.Spec("true")
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: "/x", Source: "/no/such/source", Type: "bind", Options: []string{"bind"},
		})
		_, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: s})
		if err == nil || !strings.Contains(err.Error(), "/no/such/source") || errors.Is(err, oci.ErrCommand) {
			t.Errorf("create = %v, want an error that names /no/such/source and is not %v", err, oci.ErrCommand)
		}
		must(t, "delete", r.Delete(limit(t), "c"))
	})
}

func TestLeftoversInSharedPIDNamespace(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		infra := start(t, r, oci.CreateRequest{ID: "infra", Spec: m.Spec("sleep", "1000")})
		s := m.Spec(sh("setsid sleep 1001 & sleep 1002 & exit 3")...)
		s.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/ns/pid", infra.Pid)
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		exit, err := r.Wait(limit(t), "c")
		if err != nil || exit.Code != 3 {
			t.Errorf("exit = %+v, %v, want code 3", exit, err)
		}
		if left := members(t, s); len(left) != 0 {
			t.Errorf("processes %v outlive their container, want none", left)
		}
		if st, err := r.State(limit(t), "infra"); err != nil || st.Status != oci.Running {
			t.Errorf("state of the infra container = %+v, %v, want %s", st, err, oci.Running)
		}
		s = m.Spec(sh("sleep 1001 & sleep 1002")...)
		s.Linux.Namespaces[1].Path = fmt.Sprintf("/proc/%d/ns/pid", infra.Pid)
		start(t, r, oci.CreateRequest{ID: "d", Spec: s}) // deleted while it runs
	})
}

func TestOOM(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, size := m.New(), int64(24<<20)
		limited := func(args ...string) *specs.Spec {
			s := m.Spec(args...)
			s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &size, Swap: &size}}
			return s
		}
		spec := limited("dd", "if=/dev/zero", "of=/proc/self/fd/2", "bs=64M", "count=1")
		start(t, r, oci.CreateRequest{ID: "oom", Spec: spec})
		exit, err := r.Wait(limit(t), "oom")
		if err != nil || exit.Code != 137 || !exit.OOM {
			t.Errorf("exit = %+v, %v, want code 137, OOM", exit, err)
		}
		start(t, r, oci.CreateRequest{ID: "fine", Spec: limited("true")})
		exit, err = r.Wait(limit(t), "fine")
		if err != nil || exit.Code != 0 || exit.OOM {
			t.Errorf("exit = %+v, %v, want code 0, no OOM", exit, err)
		}
	})
}

func TestTerminal(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path, s := m.New(), filepath.Join(m.LogDir, "tty.log"), m.Spec(sh("stty size && echo yes; exit 4")...)
		s.Process.Terminal = true
		start(t, r, oci.CreateRequest{ID: "c", Spec: s, Log: ocitest.LogAt(path), Terminal: true})
		exit, err := r.Wait(limit(t), "c")
		if err != nil || exit.Code != 4 {
			t.Errorf("exit = %+v, %v, want code 4", exit, err)
		}
		if got := lines(t, path); len(got) != 2 || strings.TrimSpace(got[1]) != "yes" {
			t.Errorf("log = %q, want 2 lines that end with %q", got, "yes")
		}
	})
}

func TestLongDirectories(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		m.Config.RunDir = filepath.Join(m.Config.RunDir, strings.Repeat("long", 30))
		t.Cleanup(func() { must(t, "remove", os.Remove(m.Config.RunDir)) })
		r, s := m.New(), m.Spec(sh("exit 5")...)
		s.Process.Terminal = true
		start(t, r, oci.CreateRequest{ID: strings.Repeat("c", 64), Spec: s, Terminal: true})
		exit, err := r.Wait(limit(t), strings.Repeat("c", 64))
		if err != nil || exit.Code != 5 {
			t.Errorf("exit = %+v, %v, want code 5", exit, err)
		}
	})
}

func TestBadLogPath(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, log := m.New(), ocitest.LogAt(filepath.Join(m.LogDir, "a:b.log"))
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("echo", "colon"), Log: log})
		_, err := r.Wait(limit(t), "c")
		must(t, "wait", err)
		if got := lines(t, log.Path()); len(got) != 1 || got[0] != "colon" {
			t.Errorf("lines of a log with a colon in its path = %q, want %q", got, "colon")
		}
		log.Name = "no/such/dir.log"
		_, err = r.Create(limit(t), oci.CreateRequest{ID: "d", Spec: m.Spec("true"), Log: log})
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), log.Path()) {
			t.Errorf("create with a log in a missing directory = %v, want an error that names %s", err, log.Path())
		}
		must(t, "delete", r.Delete(limit(t), "d"))
		must(t, "link", os.Symlink(m.LogDir, filepath.Join(m.LogDir, "link")))
		log.Name, log.Dir.Path = "0.log", filepath.Join(m.LogDir, "link")
		_, err = r.Create(limit(t), oci.CreateRequest{ID: "e", Spec: m.Spec("true"), Log: log})
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("create with a log in a directory that is a link = %v, want a failed precondition", err)
		}
		must(t, "delete", r.Delete(limit(t), "e"))
	})
}

// TestReopenNeedsDirectory moves the whole log directory away: conmon would exit, and the container's output be lost.
func TestReopenNeedsDirectory(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, dir := m.New(), filepath.Join(m.LogDir, "pod")
		must(t, "mkdir", os.Mkdir(dir, 0o700))
		log := ocitest.LogAt(filepath.Join(dir, "0.log"))
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000"), Log: log})
		must(t, "rename", os.Rename(dir, dir+".old"))
		if err := r.ReopenLog(limit(t), "c"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("reopen = %v, want %v", err, os.ErrNotExist)
		}
		must(t, "rename", os.Rename(dir+".old", dir))
		must(t, "reopen", r.ReopenLog(limit(t), "c"))
	})
}

// TestReopenFollowsNoSymlink puts symbolic links at the new log, and where conmon would open it by its own naming: a
// container that can write to the log directory must not choose a file of the node that conmon writes to.
func TestReopenFollowsNoSymlink(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path, secret := m.New(), filepath.Join(m.LogDir, "0.log"), filepath.Join(m.LogDir, "secret")
		must(t, "write", os.WriteFile(secret, []byte("secret"), 0o600))
		log := ocitest.LogAt(path)
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec(sh("while :; do echo x; sleep 0.01; done")...), Log: log})
		must(t, "rename", os.Rename(path, path+".old"))
		must(t, "link", os.Symlink(secret, path))
		if err := r.ReopenLog(limit(t), "c"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("reopen with a link at the log = %v, want a failed precondition", err)
		}
		must(t, "remove", os.Remove(path))
		must(t, "link", os.Symlink(secret, path+".tmp"))
		must(t, "reopen", r.ReopenLog(limit(t), "c"))
		for len(lines(t, path)) == 0 {
			time.Sleep(5 * time.Millisecond)
		}
		if got, err := os.ReadFile(secret); string(got) != "secret" {
			t.Fatalf("the links' target contains %q, %v, want %q", got, err, "secret")
		}
	})
}

// TestCreateFollowsNoSymlink puts a symbolic link at the log's path between podd's open and conmon's.
func TestCreateFollowsNoSymlink(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		path, secret := filepath.Join(m.LogDir, "0.log"), filepath.Join(m.LogDir, "secret")
		must(t, "write", os.WriteFile(secret, []byte("secret"), 0o600))
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = --version ] || ln -sf %s %s\nexec %s \"$@\"\n", secret, path,
			m.Config.Conmon)
		m.Config.Conmon = filepath.Join(t.TempDir(), "conmon")
		must(t, "write", os.WriteFile(m.Config.Conmon, []byte(script), 0o755))
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("echo", "written"), Log: ocitest.LogAt(path)})
		_, err := r.Wait(limit(t), "c")
		must(t, "wait", err)
		if target, err := os.Readlink(path); target != secret {
			t.Fatalf("link at the log = %q, %v, want %q", target, err, secret)
		}
		if got, err := os.ReadFile(secret); string(got) != "secret" {
			t.Errorf("the link's target contains %q, %v, want %q", got, err, "secret")
		}
	})
}

// TestReopenInterrupted ends the daemon between the steps of ReopenLog: the container stays as it is, and the next
// ReopenLog, by a new daemon, works.
func TestReopenInterrupted(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		path, bundle := filepath.Join(m.LogDir, "0.log"), filepath.Join(m.Config.RunDir, "c")
		log := ocitest.LogAt(path)
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec(sh("while :; do echo x; sleep 0.01; done")...), Log: log})
		for round := range 3 {
			must(t, "rename", os.Rename(path, path+".old"))
			f, err := log.Open()
			must(t, "open", err)
			must(t, "tell conmon", conmon.Reopen(bundle, f))
			if round > 0 { // conmon is told again, before or after it has opened the log
				must(t, "tell conmon again", os.WriteFile(filepath.Join(bundle, "ctl"), []byte("2 0 0\n"), 0))
			}
			f.Close()
			must(t, "reopen", m.New().ReopenLog(limit(t), "c"))
			begin := len(lines(t, path))
			for end := time.Now().Add(20 * time.Second); len(lines(t, path)) == begin; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("round %d: no lines in the log within 20s", round)
				}
			}
		}
		must(t, "rename", os.Rename(path, path+".old"))
		f, err := log.Open()
		must(t, "open", err)
		must(t, "tell conmon", conmon.Reopen(bundle, f)) // its mount is left to Delete
		f.Close()
		must(t, "delete", r.Delete(limit(t), "c"))
	})
}

// TestReopenStuckMonitor: a conmon that does not answer in time, for example because a disk is slow, goes on with the
// old log when it can, which the kubelet has moved back by then.
func TestReopenStuckMonitor(t *testing.T) {
	m := ocitest.Real(t, "runc")
	r, path := m.New(), filepath.Join(m.LogDir, "0.log")
	start(t, r, oci.CreateRequest{
		ID: "c", Spec: m.Spec(sh("while :; do echo x; sleep 0.01; done")...), Log: ocitest.LogAt(path),
	})
	pid, err := conmon.MonitorPid(filepath.Join(m.Config.RunDir, "c"))
	must(t, "pid of conmon", err)
	must(t, "stop conmon", syscall.Kill(pid, syscall.SIGSTOP))
	must(t, "rename", os.Rename(path, path+".old"))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := r.ReopenLog(ctx, "c"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("reopen with a stuck conmon = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, "rename", os.Rename(path+".old", path))
	before := len(lines(t, path))
	must(t, "continue conmon", syscall.Kill(pid, syscall.SIGCONT))
	for end := time.Now().Add(20 * time.Second); len(lines(t, path)) < before+10; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d lines in the log after 20s, want %d and more", len(lines(t, path)), before+10)
		}
	}
	must(t, "rename", os.Rename(path, path+".old"))
	must(t, "reopen", r.ReopenLog(limit(t), "c"))
}

// TestReopenWithoutMonitor: a container whose conmon has died has no log any more, and ReopenLog says so.
func TestReopenWithoutMonitor(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path := m.New(), filepath.Join(m.LogDir, "0.log")
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000"), Log: ocitest.LogAt(path)})
		pid, err := conmon.MonitorPid(filepath.Join(m.Config.RunDir, "c"))
		must(t, "pid of conmon", err)
		must(t, "kill conmon", syscall.Kill(pid, syscall.SIGKILL))
		monitor, err := process.Identify(pid)
		if err == nil {
			must(t, "wait for conmon", monitor.Wait(limit(t)))
		}
		must(t, "rename", os.Rename(path, path+".old"))
		err = r.ReopenLog(limit(t), "c")
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "conmon") {
			t.Errorf("reopen = %v, want a failed precondition that names conmon", err)
		}
		if _, err := os.Lstat(path); err == nil {
			t.Error("a failed reopen left a new file, want none")
		}
	})
}

// TestRotation rotates the log of a container that prints as fast as it can: every line is in exactly one of the files,
// in order.
func TestRotation(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path := m.New(), filepath.Join(m.LogDir, "0.log")
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec(sh("for i in 1 2 3 4 5 6 7 8 9 10; do " +
			"seq $((i*20000-19999)) $((i*20000)); sleep 0.02; done")...), Log: ocitest.LogAt(path)})
		var files []string
		for i := range 20 {
			old := fmt.Sprintf("%s.%d", path, i)
			must(t, "rename", os.Rename(path, old))
			files = append(files, old)
			err := r.ReopenLog(limit(t), "c")
			if errdefs.IsFailedPrecondition(err) {
				break // it has printed everything
			}
			must(t, "reopen", err)
		}
		_, err := r.Wait(limit(t), "c")
		must(t, "wait", err)
		if _, err := os.Stat(path); err == nil {
			files = append(files, path)
		}
		all := lines(t, files...)
		for i, line := range all {
			if line != fmt.Sprint(i+1) {
				t.Fatalf("line %d = %q, want \"%[1]d\"", i+1, line)
			}
		}
		if len(all) != 200000 {
			t.Errorf("%d lines in %d files, want 200000 lines", len(all), len(files))
		}
		t.Logf("%d files", len(files))
	})
}

func TestParallel(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, ctx := m.New(), limit(t)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				id := fmt.Sprintf("c%d", i)
				err := func() error {
					if _, err := r.Create(ctx, oci.CreateRequest{ID: id, Spec: m.Spec(sh(fmt.Sprintf("exit %d", i))...)}); err != nil {
						return err
					}
					if err := r.Start(ctx, id); err != nil {
						return err
					}
					exit, err := r.Wait(ctx, id)
					if err != nil || exit.Code != int32(i) {
						return fmt.Errorf("exit = %+v, want code %d: %w", exit, i, err)
					}
					return nil
				}()
				if err := errors.Join(err, r.Delete(ctx, id)); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestWaitTakesNoThreads(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
		before := threads(t)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() { _, _ = r.Wait(limit(t), "c") })
		}
		time.Sleep(200 * time.Millisecond)
		if after := threads(t); after > before+20 {
			t.Errorf("%d threads with 200 waiters, want at most 20 more than %d", after, before)
		}
		must(t, "kill", r.Signal(limit(t), "c", syscall.SIGKILL))
		wg.Wait()
	})
}

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	must(t, "tasks", err)
	return len(entries)
}

func TestUpdateTakesEffect(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, s := m.New(), m.Spec("sleep", "1000")
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		pids := int64(55)
		must(t, "update", r.Update(limit(t), "c", &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}}))
		for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
			b, err := os.ReadFile(filepath.Join(root, s.Linux.CgroupsPath, "pids.max"))
			if err == nil {
				if strings.TrimSpace(string(b)) != "55" {
					t.Errorf("pids.max = %q, want 55", b)
				}
				return
			}
		}
		t.Error("pids.max not found, want 55")
	})
}

func TestNotReady(t *testing.T) {
	r := runc.New(runc.Config{
		Name: "gone", Path: "no-such-runtime", Conmon: "no-such-conmon",
		SearchPath: []string{"/opt/x", "/opt/y"}, RunDir: t.TempDir(), Root: t.TempDir(),
	})
	err := r.Ready()
	for _, want := range []string{"handler gone", "no-such-runtime", "no-such-conmon", "/opt/x, /opt/y"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ready = %v, want %q in it", err, want)
		}
	}
	if !errdefs.IsUnavailable(err) {
		t.Errorf("ready = %v, want an unavailable error", err)
	}
	_, err = r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: ocitest.FakeSpec("true")})
	if !errdefs.IsUnavailable(err) {
		t.Errorf("create = %v, want an unavailable error", err)
	}
	must(t, "delete", r.Delete(limit(t), "c"))
}

func TestFeatures(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := runc.New(m.Config)
		must(t, "probe", r.Probe(limit(t)))
		f := r.Features()
		t.Logf("%s, %s: %+v", r.MonitorVersion(), m.Config.Name, f)
		if !strings.HasPrefix(f.Version, m.Config.Name+" version ") || !f.RecursiveReadOnly {
			t.Errorf("features = %+v, want version %s and recursive read-only", f, m.Config.Name)
		}
		s := m.Spec("true")
		s.Version = f.OCIVersion
		start(t, r, oci.CreateRequest{ID: "c", Spec: s}) // the runtime accepts the version it names
	})
}

// TestRecursiveReadOnly proves the feature bit: below an rro mount nothing can be written.
func TestRecursiveReadOnly(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, dir := m.New(), filepath.Join(m.LogDir, "outer")
		must(t, "mkdir", os.MkdirAll(filepath.Join(dir, "inner"), 0o777))
		must(t, "mount", syscall.Mount("tmpfs", filepath.Join(dir, "inner"), "tmpfs", 0, ""))
		t.Cleanup(func() { must(t, "unmount", syscall.Unmount(filepath.Join(dir, "inner"), 0)) })
		s := m.Spec(sh("echo x > /mnt/inner/file && exit 1; exit 0")...)
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: "/mnt", Source: dir, Type: "bind", Options: []string{"rbind", "rro"},
		})
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		exit, err := r.Wait(limit(t), "c")
		if err != nil || exit.Code != 0 {
			t.Errorf("exit = %+v, %v, want code 0", exit, err)
		}
	})
}

// TestUserNamespaces proves the feature bit: in a user namespace, an idmapped mount shows root's file as root's.
func TestUserNamespaces(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path := m.New(), filepath.Join(m.LogDir, "0.log")
		if !r.Features().UserNamespaces {
			if m.Config.Name == "runc" {
				t.Fatal("Features().UserNamespaces = false with runc, want true")
			}
			return // nothing is promised: crun before 1.9
		}
		for dir := m.Rootfs; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			must(t, "open directory", os.Chmod(dir, 0o755))
		}
		source := filepath.Join(m.LogDir, "volume")
		must(t, "write", errors.Join(os.Mkdir(filepath.Join(m.Rootfs, "volume"), 0o755), os.Mkdir(source, 0o755),
			os.WriteFile(filepath.Join(source, "file"), nil, 0o644), os.Chmod(m.LogDir, 0o755)))
		s := m.Spec(sh("ls -ln /bin/sh /volume/file | tr -s ' ' | cut -d' ' -f3")...)
		ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1 << 20, Size: 1 << 16}}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
		s.Mounts = append(s.Mounts, specs.Mount{
			Destination: "/volume", Source: source, Type: "bind", Options: []string{"bind"},
			UIDMappings: ids, GIDMappings: ids,
		})
		start(t, r, oci.CreateRequest{ID: "c", Spec: s, Log: ocitest.LogAt(path)})
		exit, err := r.Wait(limit(t), "c")
		if got := fmt.Sprint(lines(t, path)); err != nil || exit.Code != 0 || got != "[65534 0]" {
			t.Errorf("owners of an unmapped and a mapped file = %s, exit = %+v, %v, want [65534 0], code 0", got, exit, err)
		}
	})
}
