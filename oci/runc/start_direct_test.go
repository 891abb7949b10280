package runc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/process"
)

// mark has the runtime leave a file when it is called with the verb, and returns whether it was since the last call.
func mark(t *testing.T, m *ocitest.Machine, verb string) (called func() bool) {
	t.Helper()
	path := filepath.Join(m.LogDir, verb+"-called")
	wrapper(t, m, verb, fmt.Sprintf("echo >%s", path))
	return func() bool { return os.Remove(path) == nil }
}

// create creates a container that the test's end deletes.
func create(t *testing.T, r ocitest.Runtime, id string, s *specs.Spec) process.Process {
	t.Helper()
	t.Cleanup(func() { must(t, "delete", r.Delete(context.Background(), id)) })
	p, err := r.Create(limit(t), oci.CreateRequest{ID: id, Spec: s})
	must(t, "create", err)
	return p
}

func fifoOf(m *ocitest.Machine, id string) string {
	return filepath.Join(m.Config.Root, id, "exec.fifo")
}

// statusIn is the status that the runtime itself says.
func statusIn(t *testing.T, m *ocitest.Machine, id string) string {
	t.Helper()
	out, err := exec.Command(m.Config.Path, "--root", m.Config.Root, "state", id).Output()
	must(t, "state of the runtime", err)
	var said struct{ Status string }
	must(t, "parse state", json.Unmarshal(out, &said))
	return said.Status
}

// wantRuns wants a running container, for podd and for the runtime: it can be queried, executed in, paused, updated.
func wantRuns(t *testing.T, m *ocitest.Machine, r ocitest.Runtime, id string) {
	t.Helper()
	if s, err := r.State(limit(t), id); err != nil || s.Status != oci.Running {
		t.Errorf("state = %+v, %v, want %s", s, err, oci.Running)
	}
	if driver.FileExists(fifoOf(m, id)) {
		t.Error("the FIFO is there, want it removed")
	}
	if s := statusIn(t, m, id); s != "running" {
		t.Errorf("state of the runtime = %s, want running", s)
	}
	got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: id, Process: m.Spec("echo", "in").Process})
	if err != nil || string(got.Stdout) != "in\n" {
		t.Errorf("exec = %q, %v, want %q", got.Stdout, err, "in\n")
	}
	must(t, "pause", r.Pause(limit(t), id))
	must(t, "resume", r.Resume(limit(t), id))
	must(t, "update", r.Update(limit(t), id, &specs.LinuxResources{}))
}

func userNamespace(s *specs.Spec) *specs.Spec {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 1 << 20, Size: 1 << 16}}
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
	s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
	return s
}

// TestStartByFIFO: the runtime's start is not run, also with a user namespace, whose root has runc's FIFO.
func TestStartByFIFO(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		for dir := m.Rootfs; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
			must(t, "open directory", os.Chmod(dir, 0o755))
		}
		called, r := mark(t, m, "start"), m.New()
		specs := map[string]*specs.Spec{"plain": m.Spec("sleep", "1000")}
		if r.Features().UserNamespaces {
			specs["userns"] = userNamespace(m.Spec("sleep", "1000"))
		}
		for id, s := range specs {
			create(t, r, id, s)
			must(t, "start", r.Start(limit(t), id))
			if called() {
				t.Errorf("%s: the runtime's start was run, want the FIFO used", id)
			}
			wantRuns(t, m, r, id)
		}
	})
}

// TestStartByRuntime: the runtime starts what is not known to be started by the FIFO alone.
func TestStartByRuntime(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		starter, hooked, called := m.Config.Starter, filepath.Join(m.LogDir, "hooked"), mark(t, m, "start")
		for id, change := range map[string]func(*specs.Spec){
			"hook": func(s *specs.Spec) {
				s.Hooks = &specs.Hooks{Poststart: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", "echo >" + hooked}}}}
			},
			"nostarter":  func(*specs.Spec) { m.Config.Starter = "" },
			"badstarter": func(*specs.Spec) { m.Config.Starter = filepath.Join(m.LogDir, "none") },
		} {
			s := m.Spec("sleep", "1000")
			m.Config.Starter = starter
			change(s)
			r := m.New()
			create(t, r, id, s)
			must(t, "start", r.Start(limit(t), id))
			if !called() {
				t.Errorf("%s: the runtime's start was not run", id)
			}
			if ran := os.Remove(hooked) == nil; ran != (id == "hook") {
				t.Errorf("%s: the hook has run: %v", id, ran)
			}
			wantRuns(t, m, r, id)
		}
		m.Config.Starter = starter
		wrapper(t, m, "--version", "echo "+m.Config.Name+" version 1.99.0; exit 0")
		r := m.New()
		create(t, r, "version", m.Spec("sleep", "1000"))
		if must(t, "start", r.Start(limit(t), "version")); !called() {
			t.Error("version whose source has not been read: the runtime's start was not run")
		}
	})
}

// release is what the starter does before it removes the FIFO.
func release(t *testing.T, m *ocitest.Machine, id string) {
	t.Helper()
	var err error
	if m.Config.Name == "crun" {
		err = os.WriteFile(fifoOf(m, id), []byte{0}, 0)
	} else {
		_, err = os.ReadFile(fifoOf(m, id))
	}
	must(t, "release", err)
	if !driver.FileExists(fifoOf(m, id)) {
		t.Fatal("the FIFO is gone, want it there")
	}
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	if err := process.Poll(limit(t), done); err != nil {
		t.Fatalf("not seen: %s", what)
	}
}

// closed waits until the process has let go of the FIFO, which it does some instructions after the byte.
func closed(t *testing.T, p process.Process) {
	t.Helper()
	eventually(t, "the process closes the FIFO", func() bool {
		found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Pid))
		for _, f := range found {
			if target, _ := os.Readlink(f); strings.HasSuffix(target, "exec.fifo") {
				return false
			}
		}
		return true
	})
}

// TestStarterKilled: the starter was killed after it released the container and before it removed the FIFO, and podd
// with it. The runtime says then that the container was not started.
func TestStarterKilled(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		called := mark(t, m, "start")
		for _, id := range []string{"state", "start", "delete"} {
			p := create(t, m.New(), id, m.Spec("sleep", "1000"))
			release(t, m, id)
			closed(t, p)
			if s := statusIn(t, m, id); s != "created" {
				t.Fatalf("state of the runtime = %s, want created, else this tests nothing", s)
			}
			called() // by the start of what runs, below
			r := m.New()
			switch id {
			case "state":
				wantRuns(t, m, r, id)
				must(t, "start what runs", r.Start(limit(t), id))
				wantRuns(t, m, r, id)
			case "start":
				must(t, "start what runs", m.New().Start(limit(t), id))
				if called() {
					t.Error("the runtime's start was run, which would wait for a process that does not wait")
				}
				wantRuns(t, m, r, id)
			}
			must(t, "delete", r.Delete(limit(t), id))
		}
	})
}

// TestStarterKilledAtOpen: the starter was killed when it had opened the FIFO. A process of crun waits on; of runc, it
// may die, as it may when `runc start` is killed.
func TestStarterKilledAtOpen(t *testing.T) {
	m := ocitest.Real(t, "crun")
	create(t, m.New(), "c", m.Spec("sleep", "1000"))
	f, err := os.OpenFile(fifoOf(m, "c"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	must(t, "open", err)
	f.Close()
	if s, err := m.New().State(limit(t), "c"); err != nil || s.Status != oci.Created {
		t.Errorf("state = %+v, %v, want %s", s, err, oci.Created)
	}
}

// TestStateOfWaiting: State does not run the runtime if the process has the FIFO open.
func TestStateOfWaiting(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		called := mark(t, m, "state")
		create(t, m.New(), "c", m.Spec("sleep", "1000"))
		if s, err := m.New().State(limit(t), "c"); err != nil || s.Status != oci.Created || called() {
			t.Errorf("state = %+v, %v, want %s without the runtime", s, err, oci.Created)
		}
		must(t, "lose the state", os.RemoveAll(filepath.Join(m.Config.Root, "c")))
		if s, err := m.New().State(limit(t), "c"); err != nil || s.Status != oci.Created || !called() {
			t.Errorf("state = %+v, %v, want %s from the runtime", s, err, oci.Created)
		}
	})
}

// outcome is what a Start leads to.
type outcome struct {
	err, exit string
	command   bool
}

// startIn starts a new container in a situation that arrange makes, and returns the outcome. If it does not end by
// itself, it is killed.
func startIn(t *testing.T, m *ocitest.Machine, id string, s situation) outcome {
	t.Helper()
	r := m.New()
	p := create(t, r, id, m.Spec(s.args...))
	must(t, "arrange", s.arrange(p, fifoOf(m, id)))
	err := r.Start(limit(t), id)
	got := outcome{err: strings.ReplaceAll(fmt.Sprint(err), id, "ID"), command: errors.Is(err, oci.ErrCommand)}
	cgroups.DirsOf(p.Pid).Thaw()
	if !s.ends {
		must(t, "kill", r.Signal(limit(t), id, syscall.SIGKILL))
	}
	exit, err := r.Wait(limit(t), id)
	must(t, "wait", err)
	got.exit = fmt.Sprint(exit.Code)
	return got
}

// situation is a created container in which something has happened before its start.
type situation struct {
	args    []string
	ends    bool
	arrange func(p process.Process, fifo string) error
}

func situations() map[string]situation {
	replace := func(with func(fifo string) error) func(process.Process, string) error {
		return func(_ process.Process, fifo string) error { return errors.Join(os.Remove(fifo), with(fifo)) }
	}
	sleeps := []string{"sleep", "1000"}
	return map[string]situation{
		"cannot be executed": {[]string{"/bin/bad"}, true, func(process.Process, string) error { return nil }},
		"init-was-killed": {sleeps, false, func(p process.Process, _ string) error {
			return errors.Join(p.Signal(syscall.SIGKILL), p.Wait(context.Background()))
		}},
		"frozen": {sleeps, false, func(p process.Process, _ string) error {
			return cgroups.DirsOf(p.Pid).Freeze(context.Background())
		}},
		"no-fifo": {sleeps, false, replace(func(string) error { return nil })},
		"regular": {sleeps, false, replace(func(fifo string) error { return os.WriteFile(fifo, nil, 0o600) })},
		"link":    {sleeps, false, replace(func(fifo string) error { return os.Symlink("/dev/null", fifo) })},
	}
}

// TestStartErrors: where the FIFO cannot be used, Start ends as it does without the starter.
func TestStartErrors(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		starter := m.Config.Starter
		must(t, "write", os.WriteFile(filepath.Join(m.Rootfs, "bin/bad"), []byte("\x7fELF"), 0o755))
		for what, s := range situations() {
			var got [2]outcome
			for i, program := range []string{starter, ""} {
				m.Config.Starter = program
				got[i] = startIn(t, m, fmt.Sprintf("c%d-%.4s", i, what), s)
			}
			t.Logf("%s: %+v", what, got[0])
			if got[0] != got[1] {
				t.Errorf("%s: with the starter %+v, want as without %+v", what, got[0], got[1])
			}
		}
	})
}

// TestStarterIsNotRun: a container that is frozen is left to the runtime, and so is one that a podd with a starter has
// created and one without starts.
func TestStarterIsNotRun(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		ran := filepath.Join(m.LogDir, "starter-ran")
		script := fmt.Sprintf("#!/bin/sh\necho >%s\nexec %s \"$@\"\n", ran, m.Config.Starter)
		m.Config.Starter = filepath.Join(m.LogDir, "starter")
		must(t, "write", os.WriteFile(m.Config.Starter, []byte(script), 0o755))
		called, r := mark(t, m, "start"), m.New()
		p := create(t, r, "frozen", m.Spec("sleep", "1000"))
		must(t, "freeze", cgroups.DirsOf(p.Pid).Freeze(limit(t)))
		_ = r.Start(limit(t), "frozen") // runc refuses it
		cgroups.DirsOf(p.Pid).Thaw()
		if !called() || driver.FileExists(ran) {
			t.Error("frozen: the starter was run, want the runtime's start")
		}
		create(t, r, "c", m.Spec("sleep", "1000"))
		m.Config.Starter = ""
		r = m.New()
		must(t, "start without a starter", r.Start(limit(t), "c"))
		if !called() {
			t.Error("without a starter: the runtime's start was not run")
		}
		wantRuns(t, m, r, "c")
	})
}

// stop stops all threads of a process. A thread that is only about to stop can still open the FIFO with a reader of it,
// and dies if it writes when the reader is gone.
func stop(t *testing.T, p process.Process) {
	t.Helper()
	must(t, "stop", p.Signal(syscall.SIGSTOP))
	eventually(t, "the process is stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			text, err := os.ReadFile(path)
			return err != nil || !bytes.Contains(text, []byte(") T "))
		})
	})
}

// TestStarterFails: the process ends while the starter waits for it. The error is that of the runtime's start, which
// the starter has executed.
func TestStarterFails(t *testing.T) {
	m := ocitest.Real(t, "runc")
	wrapper(t, m, "start", "echo no >&2; exit 3")
	r := m.New()
	p := create(t, r, "c", m.Spec("sleep", "1000"))
	stop(t, p)
	started := make(chan error)
	go func() { started <- r.Start(limit(t), "c") }()
	eventually(t, "a starter", func() bool { return len(starters(m)) == 1 })
	must(t, "kill", p.Signal(syscall.SIGKILL))
	want := "start container: " + filepath.Base(m.Config.Path) + " start: no"
	if err := <-started; fmt.Sprint(err) != want {
		t.Errorf("start = %v, want %s", err, want)
	}
}

// TestStartOfStopped: the process of a container of runc does not go on. Start ends with its context, and nothing has
// happened: the next one starts the container. A process of crun has its byte, and runs as soon as it can.
func TestStartOfStopped(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		p := create(t, r, "c", m.Spec("sleep", "1000"))
		stop(t, p)
		gone := errors.New("caller is gone")
		ctx, cancel := context.WithCancelCause(limit(t))
		time.AfterFunc(300*time.Millisecond, func() { cancel(gone) })
		begin := time.Now()
		if err := r.Start(ctx, "c"); m.Config.Name == "runc" && !errors.Is(err, gone) {
			t.Errorf("start = %v, want %v", err, gone)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("start took %s, want 300ms", took)
		}
		must(t, "continue", p.Signal(syscall.SIGCONT))
		if m.Config.Name == "runc" {
			if s, err := m.New().State(limit(t), "c"); err != nil || s.Status != oci.Created {
				t.Errorf("state = %+v, %v, want %s", s, err, oci.Created)
			}
			must(t, "start again", r.Start(limit(t), "c"))
		}
		wantRuns(t, m, r, "c")
	})
}

// TestStartCancelled: nothing happens for a caller that is gone.
func TestStartCancelled(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := m.New()
		create(t, r, "c", m.Spec("sleep", "1000"))
		ctx, cancel := context.WithCancel(limit(t))
		cancel()
		if err := r.Start(ctx, "c"); !errors.Is(err, context.Canceled) {
			t.Errorf("start = %v, want %v", err, context.Canceled)
		}
		if s, err := m.New().State(limit(t), "c"); err != nil || s.Status != oci.Created {
			t.Errorf("state = %+v, %v, want %s", s, err, oci.Created)
		}
		must(t, "start", r.Start(limit(t), "c"))
		wantRuns(t, m, r, "c")
	})
}

// TestStarterSurvives kills the daemon while the starter waits for the container's process, which the starter survives.
// If it did not, a process that is just about to write would die of it.
func TestStarterSurvives(t *testing.T) {
	m := ocitest.Real(t, "runc")
	p := create(t, m.New(), "c", m.Spec("sleep", "1000"))
	stop(t, p)
	text, err := json.Marshal(order{m.Config, request{ID: "c"}})
	must(t, "encode", err)
	daemon := exec.Command("/proc/self/exe")
	daemon.Env = append(os.Environ(), orderVariable+"="+string(text))
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(t, "start", daemon.Start())
	eventually(t, "a starter", func() bool { return len(starters(m)) == 1 })
	must(t, "kill", syscall.Kill(-daemon.Process.Pid, syscall.SIGKILL))
	_ = daemon.Wait() // reports the kill
	if len(starters(m)) != 1 {
		t.Error("the starter died with the daemon")
	}
	must(t, "continue", p.Signal(syscall.SIGCONT))
	r := m.New()
	eventually(t, "the container runs", func() bool {
		s, err := r.State(limit(t), "c")
		return err == nil && s.Status == oci.Running
	})
	wantRuns(t, m, r, "c")
}

// starters are the processes of the machine's starter.
func starters(m *ocitest.Machine) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if path, _ := os.Readlink(filepath.Join(d, "exe")); path == m.Config.Starter {
			found = append(found, d)
		}
	}
	return found
}
