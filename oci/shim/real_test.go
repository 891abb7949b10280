package shim_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim"
)

func must(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// until polls for a condition that must come true.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 20s", what)
		}
	}
}

func runcMachine(t testing.TB) *machine { return newMachine(t, "containerd-shim-runc-v2", "runc") }

// start runs a container that the test's end deletes.
func start(t testing.TB, r *shim.Runtime, req oci.CreateRequest) process.Process {
	t.Helper()
	t.Cleanup(func() {
		if err := r.Delete(context.Background(), req.ID); err != nil {
			t.Errorf("delete %s: %v", req.ID, err)
		}
	})
	p, err := r.Create(limit(t), req)
	must(t, "create", err)
	must(t, "start", r.Start(limit(t), req.ID))
	return p
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func readLog(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// processes reads the record in a container's bundle.
func (m *machine) processes(t testing.TB, id string) (rec struct {
	Owner   string
	Address string
	Shim    process.Process
	Init    process.Process
	Stdio   process.Process `json:"stdio"`
}) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(m.cfg.RunDir, id, "podd.json"))
	must(t, "read record", err)
	must(t, "read record", json.Unmarshal(b, &rec))
	return rec
}

// pod runs an infra container and one that joins it.
func pod(t testing.TB, m *machine, r *shim.Runtime) (app oci.CreateRequest) {
	t.Helper()
	start(t, r, oci.CreateRequest{ID: "pod", PodID: "pod", Spec: m.Spec("sleep", "1000")})
	app = oci.CreateRequest{
		ID: "app", PodID: "pod", Spec: m.Spec(sh("echo up; exec sleep 1000")...),
		Log: ocitest.LogAt(filepath.Join(m.LogDir, "app.log")),
	}
	start(t, r, app)
	until(t, "app is up", func() bool { return strings.Contains(readLog(app.Log.Path()), "up") })
	return app
}

// TestPodSharesShim: the containers of a pod have one shim, and each ends on its own.
func TestPodSharesShim(t *testing.T) {
	m := runcMachine(t)
	r := m.open(t)
	pod(t, m, r)
	infra, app := m.processes(t, "pod"), m.processes(t, "app")
	if app.Shim != infra.Shim || app.Owner != "pod" || app.Init == infra.Init || app.Stdio == infra.Stdio {
		t.Errorf("infra = %+v, app = %+v, want one shim, owner pod, and two init and stdio processes", infra, app)
	}
	if !app.Init.DescendsFrom(app.Shim) {
		t.Errorf("init process %+v does not descend from the shim %+v", app.Init, app.Shim)
	}
	var spec specs.Spec
	b, err := os.ReadFile(filepath.Join(m.cfg.RunDir, "app", "config.json"))
	must(t, "config.json", err)
	must(t, "config.json", json.Unmarshal(b, &spec))
	if a := spec.Annotations; a["io.kubernetes.cri.container-type"] != "container" ||
		a["io.kubernetes.cri.sandbox-id"] != "pod" {
		t.Errorf("annotations = %v, want those of a container in sandbox pod", a)
	}
	must(t, "delete app", r.Delete(limit(t), "app"))
	s, err := r.State(limit(t), "pod")
	must(t, "state", err)
	if s.Status != oci.Running {
		t.Errorf("infra container is %s after the deletion of another, want %s", s.Status, oci.Running)
	}
	must(t, "delete pod", r.Delete(limit(t), "pod"))
	if infra.Shim.Alive() {
		t.Error("the shim outlives its pod")
	}
	if _, err := os.Lstat(infra.Address); err == nil {
		t.Errorf("the shim's socket %s is left", infra.Address)
	}
}

// TestDaemonDies: nothing is lost while no daemon runs, nor is the exit code.
func TestDaemonDies(t *testing.T) {
	m := runcMachine(t)
	first, ctx := m.open(t), limit(t)
	go_ := filepath.Join(m.Rootfs, "tmp", "go")
	path := filepath.Join(m.LogDir, "0.log")
	start(t, first, oci.CreateRequest{ID: "c", Log: ocitest.LogAt(path), Spec: m.Spec(sh("echo before; " +
		"while ! [ -e /tmp/go ]; do sleep 0.02; done; seq 1 20000; exit 7")...)})
	until(t, "it runs", func() bool { return strings.Contains(readLog(path), "before") })
	must(t, "close", first.Close())
	must(t, "go", os.WriteFile(go_, nil, 0o600))
	until(t, "it has written", func() bool { return strings.Contains(readLog(path), " stdout F 20000\n") })

	second := m.open(t)
	exit, err := second.Wait(ctx, "c")
	must(t, "wait", err)
	if exit.Code != 7 || !exit.Known {
		t.Errorf("exit = %+v, want code 7, known", exit)
	}
	if n := strings.Count(readLog(path), " F "); n != 20001 {
		t.Errorf("%d lines in the log, want 20001", n)
	}
	must(t, "delete", second.Delete(ctx, "c"))
}

// TestShimKilled: the containers of that pod have ended, with an unknown status; another pod does not notice.
func TestShimKilled(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	pod(t, m, r)
	start(t, r, oci.CreateRequest{ID: "other", Spec: m.Spec("sleep", "1000")})
	app := m.processes(t, "app")
	exits := make(chan oci.Exit, 2)
	for _, id := range []string{"pod", "app"} {
		go func() {
			exit, err := r.Wait(ctx, id)
			if err != nil {
				t.Errorf("wait for %s: %v", id, err)
			}
			exits <- exit
		}()
	}
	must(t, "kill the shim", app.Shim.Kill(ctx))
	for range 2 {
		if exit := <-exits; exit.Code != 255 || exit.Known {
			t.Errorf("exit = %+v, want code 255, not known", exit)
		}
	}
	if app.Init.Alive() {
		t.Error("the container outlives its shim")
	}
	for id, want := range map[string]oci.Status{"pod": oci.Stopped, "app": oci.Stopped, "other": oci.Running} {
		if s, err := r.State(ctx, id); err != nil || s.Status != want {
			t.Errorf("%s is %s, %v, want %s", id, s.Status, err, want)
		}
	}
	must(t, "signal to what is gone", r.Signal(ctx, "app", syscall.SIGKILL))
	_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "app", Process: m.Spec("true").Process})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec = %v, want a failed precondition", err)
	}
	must(t, "delete", r.Delete(ctx, "app"))
	must(t, "delete", r.Delete(ctx, "pod"))
}

// freeze stops a process, and returns when all its threads have: until then one of them may answer.
func freeze(t *testing.T, p process.Process) {
	t.Helper()
	must(t, "stop", p.Signal(syscall.SIGSTOP))
	until(t, "all threads are stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.Pid))
		return err == nil && len(threads) > 0 && !slices.ContainsFunc(threads, func(path string) bool {
			return !strings.Contains(readLog(path), "State:\tT")
		})
	})
}

// TestShimHangs: calls come back, and Delete needs no answer.
func TestShimHangs(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	pod(t, m, r)
	app := m.processes(t, "app")
	freeze(t, app.Shim)
	m.cfg.CallTimeout = time.Second
	r = m.open(t)
	if s, err := r.State(ctx, "app"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("state = %+v, %v, want %v", s, err, context.DeadlineExceeded)
	}
	_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "app", Process: m.Spec("true").Process})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("exec = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, "delete", r.Delete(ctx, "app"))
	must(t, "delete", r.Delete(ctx, "pod"))
	if shimRuns, initRuns := app.Shim.Alive(), app.Init.Alive(); shimRuns || initRuns {
		t.Errorf("shim runs: %v, container runs: %v, want neither", shimRuns, initRuns)
	}
}

// TestKillWithHungShim: SIGKILL kills the container, and Wait returns.
func TestKillWithHungShim(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	c := m.processes(t, "c")
	freeze(t, c.Shim)
	m.cfg.CallTimeout = time.Second
	r = m.open(t)
	if err := r.Signal(ctx, "c", syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("SIGTERM = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, "SIGKILL", r.Signal(ctx, "c", syscall.SIGKILL))
	exit, err := r.Wait(ctx, "c")
	if err != nil || exit.Known || exit.Code != 255 {
		t.Errorf("exit = %+v, %v, want code 255, not known", exit, err)
	}
	if c.Init.Alive() {
		t.Error("the container still runs after SIGKILL")
	}
}

// exitOf receives the exit of a container.
func exitOf(ctx context.Context, r *shim.Runtime, id string) <-chan oci.Exit {
	exited := make(chan oci.Exit, 1)
	go func() {
		exit, _ := r.Wait(ctx, id)
		exited <- exit
	}()
	return exited
}

// TestStdioProcessKilled: another stdio process copies the rest of the output, and Wait waits for that one too.
func TestStdioProcessKilled(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	path := filepath.Join(m.LogDir, "0.log")
	start(t, r, oci.CreateRequest{ID: "c", Log: ocitest.LogAt(path), Spec: m.Spec(sh("echo one; " +
		"while ! [ -e /tmp/go ]; do sleep 0.02; done; seq 1 1000; echo end")...)})
	exited := exitOf(ctx, r, "c")
	until(t, "it runs", func() bool { return strings.Contains(readLog(path), "one") })
	first := m.processes(t, "c").Stdio
	must(t, "kill the stdio process", first.Kill(ctx))
	until(t, "there is another", func() bool { return m.processes(t, "c").Stdio != first })
	// The second one is slow: the container ends before its output is written.
	now := m.processes(t, "c")
	freeze(t, now.Stdio)
	must(t, "go", os.WriteFile(filepath.Join(m.Rootfs, "tmp", "go"), nil, 0o600))
	until(t, "the container has ended", func() bool { return !now.Init.Alive() })
	time.AfterFunc(300*time.Millisecond, func() { _ = now.Stdio.Signal(syscall.SIGCONT) })
	if exit := <-exited; exit.Code != 0 || !exit.Known {
		t.Errorf("exit = %+v, want code 0, known", exit)
	}
	if got := readLog(path); !strings.HasSuffix(got, " stdout F end\n") || strings.Count(got, " F ") != 1002 {
		t.Errorf("%d lines that end with %q, want 1002 that end with %q",
			strings.Count(got, " F "), got[max(len(got)-100, 0):], " stdout F end\n")
	}
}

// TestStdioProcessRestartedLater: while no stdio process can be started the output waits, and then one writes it.
func TestStdioProcessRestartedLater(t *testing.T) {
	m := runcMachine(t)
	log := logrus.New()
	m.cfg.Log = log
	r, ctx := m.open(t), limit(t)
	path := filepath.Join(m.LogDir, "0.log")
	start(t, r, oci.CreateRequest{ID: "c", Log: ocitest.LogAt(path), Spec: m.Spec(sh("echo one; " +
		"while ! [ -e /tmp/write ]; do sleep 0.02; done; seq 1 1000; while ! [ -e /tmp/end ]; do sleep 0.02; done")...)})
	exited := exitOf(ctx, r, "c")
	touch := func(name string) { must(t, name, os.WriteFile(filepath.Join(m.Rootfs, "tmp", name), nil, 0o600)) }
	until(t, "it runs", func() bool { return strings.Contains(readLog(path), "one") })
	first, failed := m.processes(t, "c").Stdio, logged(log, "failed to restart the stdio process")
	must(t, "take the program away", os.Rename(m.cfg.Stdio, m.cfg.Stdio+".away"))
	must(t, "kill the stdio process", first.Kill(ctx))
	<-failed
	touch("write")
	must(t, "put the program back", os.Rename(m.cfg.Stdio+".away", m.cfg.Stdio))
	until(t, "there is another", func() bool { return m.processes(t, "c").Stdio != first })
	touch("end")
	if exit := <-exited; exit.Code != 0 || !exit.Known {
		t.Errorf("exit = %+v, want code 0, known", exit)
	}
	if got := readLog(path); !strings.HasSuffix(got, " stdout F 1000\n") || strings.Count(got, " F ") != 1001 {
		t.Errorf("%d lines that end with %q, want 1001 that end with 1000",
			strings.Count(got, " F "), got[max(len(got)-100, 0):])
	}
}

// logged returns a channel that is closed once a message is logged.
func logged(log *logrus.Logger, message string) <-chan struct{} {
	seen := make(chan struct{})
	log.AddHook(&hook{message: message, seen: seen})
	return seen
}

// hook closes seen at the first entry with the message.
type hook struct {
	message string
	once    sync.Once
	seen    chan struct{}
}

func (h *hook) Levels() []logrus.Level { return logrus.AllLevels }

func (h *hook) Fire(e *logrus.Entry) error {
	if strings.Contains(e.Message, h.message) {
		h.once.Do(func() { close(h.seen) })
	}
	return nil
}

// TestDeleteWithoutRecord: a daemon that died while it made the container has left a shim that nothing names.
func TestDeleteWithoutRecord(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	c := m.processes(t, "c")
	must(t, "remove", os.Remove(filepath.Join(m.cfg.RunDir, "c", "podd.json")))
	if s, err := r.State(ctx, "c"); err != nil || s.Status != oci.Absent {
		t.Errorf("state = %+v, %v, want %s", s, err, oci.Absent)
	}
	must(t, "delete", m.open(t).Delete(ctx, "c"))
	shimRuns, initRuns, stdioRuns := c.Shim.Alive(), c.Init.Alive(), c.Stdio.Alive()
	if shimRuns || initRuns || stdioRuns {
		t.Errorf("shim runs: %v, container runs: %v, stdio process runs: %v, want none",
			shimRuns, initRuns, stdioRuns)
	}
	if _, err := os.Lstat(c.Address); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lstat of the shim's socket = %v, want %v", err, fs.ErrNotExist)
	}
}

// TestCreateTimeout: what a creation that takes too long has started is killed.
func TestCreateTimeout(t *testing.T) {
	m := runcMachine(t)
	dir := filepath.Dir(m.cfg.RunDir)
	slow := filepath.Join(dir, "runc-slow")
	must(t, "write", os.WriteFile(slow, []byte("#!/bin/sh\nsleep 1000\n"), 0o755))
	m.cfg.Runtime, m.cfg.CreateTimeout, m.cfg.CallTimeout = slow, 2*time.Second, 2*time.Second
	r, ctx := m.open(t), limit(t)
	_, err := r.Create(ctx, oci.CreateRequest{ID: "c", Spec: m.Spec("true")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("create = %v, want %v", err, context.DeadlineExceeded)
	}
	must(t, "delete", r.Delete(ctx, "c"))
}

// TestInvalidStartAnswers: invalid answers of a shim to start are refused, and nothing is left.
func TestInvalidStartAnswers(t *testing.T) {
	for name, script := range map[string]string{
		"silent":     "exit 0",
		"words":      "echo cannot start",
		"failing":    "echo no such thing >&2; exit 1",
		"abstract":   "echo unix://@/x",
		"no server":  "echo unix:///tmp/no/such/socket",
		"file":       "echo unix:///etc/passwd",
		"flood":      "head -c 10000000 /dev/zero",
		"grandchild": "sleep 1000 & echo unix:///tmp/no/such/socket",
	} {
		t.Run(name, func(t *testing.T) {
			m := runcMachine(t)
			m.cfg.Path = filepath.Join(filepath.Dir(m.cfg.RunDir), "containerd-shim-fake-v2")
			must(t, "write", os.WriteFile(m.cfg.Path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
			r := m.open(t)
			if p, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: m.Spec("true")}); err == nil {
				t.Errorf("create = %+v, want an error", p)
			}
			must(t, "delete", r.Delete(limit(t), "c"))
		})
	}
}

// TestAnotherShimsAddress: a shim cannot pass another pod's off as its own.
func TestAnotherShimsAddress(t *testing.T) {
	m := runcMachine(t)
	r := m.open(t)
	start(t, r, oci.CreateRequest{ID: "victim", Spec: m.Spec("sleep", "1000")})
	fake := *m
	fake.cfg.Path = filepath.Join(filepath.Dir(m.cfg.RunDir), "containerd-shim-fake-v2")
	fake.cfg.Root = filepath.Join(filepath.Dir(m.cfg.RunDir), "l")
	must(t, "write", os.WriteFile(fake.cfg.Path,
		fmt.Appendf(nil, "#!/bin/sh\necho unix://%s\n", m.processes(t, "victim").Address), 0o755))
	l := fake.open(t)
	if p, err := l.Create(limit(t), oci.CreateRequest{ID: "c", Spec: m.Spec("true")}); err == nil {
		t.Errorf("create with the address of another pod's shim = %+v, want an error", p)
	}
	must(t, "delete", l.Delete(limit(t), "c"))
	if s, err := r.State(limit(t), "victim"); err != nil || s.Status != oci.Running {
		t.Errorf("the other pod's container is %s, %v, want %s", s.Status, err, oci.Running)
	}
}

func TestAttach(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	start(t, r, oci.CreateRequest{ID: "c", Stdin: true, StdinOnce: true, Spec: m.Spec(sh("cat; echo bye >&2; exit 4")...)})
	var stdout, stderr ocitest.Output
	in, typed := io.Pipe()
	attached := make(chan error, 1)
	go func() { attached <- r.Attach(ctx, "c", oci.Streams{Stdin: in, Stdout: &stdout, Stderr: &stderr}) }()
	_, err := typed.Write([]byte("hello\n"))
	must(t, "type", err)
	until(t, "echo", func() bool { return stdout.String() == "hello\n" })
	must(t, "end of input", typed.Close())
	must(t, "attach", <-attached)
	if stderr.String() != "bye\n" {
		t.Errorf("stderr = %q, want %q", stderr.String(), "bye\n")
	}
	if exit, err := r.Wait(ctx, "c"); err != nil || exit.Code != 4 {
		t.Errorf("exit = %+v, %v, want code 4", exit, err)
	}
	if err := r.Attach(ctx, "c", oci.Streams{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("attach to an exited container = %v, want a failed precondition", err)
	}
}

func TestTerminal(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	s := m.Spec(sh(`read x; stty size; echo "got $x"`)...)
	s.Process.Terminal = true
	start(t, r, oci.CreateRequest{ID: "c", Stdin: true, Terminal: true, Spec: s})
	var out ocitest.Output
	in, typed := io.Pipe()
	defer typed.Close()
	sizes := make(chan oci.Size, 1)
	sizes <- oci.Size{Width: 77, Height: 33}
	attached := make(chan error, 1)
	go func() { attached <- r.Attach(ctx, "c", oci.Streams{Stdin: in, Stdout: &out, Resize: sizes}) }()
	_, err := typed.Write([]byte("word\n"))
	must(t, "type", err)
	must(t, "attach", <-attached)
	if got := out.String(); !strings.Contains(got, "got word") {
		t.Errorf("output = %q, want it to contain %q", got, "got word")
	}
}

func TestExecStreams(t *testing.T) {
	m := runcMachine(t)
	r, ctx := m.open(t), limit(t)
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	var stdout, stderr ocitest.Output
	code, err := r.Exec(ctx, "c", m.Spec(sh("cat; echo err >&2; exit 9")...).Process,
		oci.Streams{Stdin: strings.NewReader(strings.Repeat("data\n", 50000)), Stdout: &stdout, Stderr: &stderr})
	if err != nil || code != 9 || len(stdout.String()) != 250000 || stderr.String() != "err\n" {
		t.Errorf("exec = %d, %v, %d bytes, %q, want 9, nil, 250000 bytes, %q",
			code, err, len(stdout.String()), stderr.String(), "err\n")
	}
	p := m.Spec(sh("stty size")...).Process
	p.Terminal = true
	sizes := make(chan oci.Size, 1)
	sizes <- oci.Size{Width: 101, Height: 37}
	var screen ocitest.Output
	code, err = r.Exec(ctx, "c", p, oci.Streams{Stdout: &screen, Resize: sizes})
	if err != nil || code != 0 || screen.String() != "37 101\r\n" {
		t.Errorf("exec with a terminal = %d, %v, %q, want 0, nil, %q", code, err, screen.String(), "37 101\r\n")
	}
	// A client that goes away ends the command.
	short, cancel := context.WithCancel(ctx)
	ready := &notifier{found: cancel}
	_, err = r.Exec(short, "c", m.Spec(sh("echo go; sleep 1000")...).Process, oci.Streams{Stdout: ready})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("exec of a client that disconnected = %v, want %v", err, context.Canceled)
	}
	until(t, "nothing is left of the commands", func() bool {
		left, err := filepath.Glob(filepath.Join(m.cfg.RunDir, "c", "*exec-*"))
		return err == nil && len(left) == 0
	})
}

// notifier calls found at the first write.
type notifier struct{ found func() }

func (n *notifier) Write(p []byte) (int, error) {
	n.found()
	return len(p), nil
}

func TestExecSyncReturnsThoughChildHoldsOutput(t *testing.T) {
	m := runcMachine(t)
	r := m.open(t)
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	begin := time.Now()
	command := m.Spec(sh("echo out; echo err >&2; sleep 1000 & exit 7")...).Process
	got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: command})
	if err != nil || got.Code != 7 || string(got.Stdout) != "out\n" || string(got.Stderr) != "err\n" {
		t.Errorf("exec = %d, %q, %q, %v, want 7, %q, %q, nil",
			got.Code, got.Stdout, got.Stderr, err, "out\n", "err\n")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("exec took %s, want at most 10s", took)
	}
}

func TestReady(t *testing.T) {
	m := runcMachine(t)
	good := m.cfg
	for name, change := range map[string]func(*shim.Config){
		"no shim":    func(c *shim.Config) { c.Path = "/no/such/shim" },
		"bare name":  func(c *shim.Config) { c.Path, c.SearchPath = "containerd-shim-none-v1", []string{"/usr/bin"} },
		"no runtime": func(c *shim.Config) { c.Runtime = "/no/such/runc" },
		"no stdio":   func(c *shim.Config) { c.Stdio = "" },
		"not a shim": func(c *shim.Config) { c.Path = "/bin/false" },
	} {
		m.cfg = good
		change(&m.cfg)
		r := m.open(t)
		if err := r.Ready(); !errdefs.IsUnavailable(err) {
			t.Errorf("%s: Ready = %v, want an unavailable error", name, err)
		}
		if f := r.Features(); f.OCIVersion != "1.0.2" {
			t.Errorf("%s: features = %+v, want OCI version 1.0.2", name, f)
		}
	}
	m.cfg = good
	if f := m.open(t).Features(); f.OwnKernel || f.HostNetwork || f.OCIVersion < "1.2" || len(f.MountOptions) == 0 ||
		!strings.Contains(f.Version, "containerd-shim-runc-v2") {
		t.Errorf("features = %+v, want those of containerd-shim-runc-v2 with runc", f)
	}
}

// gvisorPod runs an infra container and one that joins it in gVisor's sandbox.
func gvisorPod(t testing.TB) (*machine, *shim.Runtime, oci.CreateRequest) {
	m := gvisorMachine(t)
	r := m.open(t)
	return m, r, pod(t, m, r)
}

// TestGVisorKernel: both containers of the pod see the sandbox's kernel, and one process is the sandbox of both.
func TestGVisorKernel(t *testing.T) {
	m, r, _ := gvisorPod(t)
	for _, id := range []string{"pod", "app"} {
		got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: id, Process: m.Spec(sh("dmesg")...).Process})
		if err != nil || !strings.Contains(string(got.Stdout), "Starting gVisor") {
			t.Errorf("%s: dmesg = %q, %q, %v, want %q in it", id, got.Stdout, got.Stderr, err, "Starting gVisor")
		}
	}
	infra, app := m.processes(t, "pod"), m.processes(t, "app")
	if app.Init != infra.Init || app.Init == app.Shim {
		t.Errorf("infra = %+v, app = %+v, want one init process, other than the shim", infra, app)
	}
	if f := r.Features(); !f.OwnKernel || f.RecursiveReadOnly || f.UserNamespaces {
		t.Errorf("features = %+v, want only OwnKernel of the kernel's", f)
	}
	if u, err := r.Usage(limit(t), "app"); err != nil || u.Memory.Usage == 0 || u.Pids.Current == 0 {
		t.Errorf("usage = %+v, %v, want memory and pids above 0", u, err)
	}
	must(t, "delete app", r.Delete(limit(t), "app"))
	if _, err := r.Usage(limit(t), "app"); !errdefs.IsNotFound(err) {
		t.Errorf("usage of a deleted container = %v, want not found", err)
	}
	if !infra.Init.Alive() {
		t.Error("the sandbox exited with one of its containers")
	}
}

// TestGVisorExecTimeout: a command that takes too long is gone from the sandbox, not only its shadow on the host, even
// if its time is over while the shim is starting it.
func TestGVisorExecTimeout(t *testing.T) {
	m := gvisorMachine(t)
	r, ctx := m.open(t), limit(t)
	pod(t, m, r)
	for _, timeout := range []time.Duration{
		time.Second, 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, time.Millisecond,
	} {
		begin := time.Now()
		_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "app", Process: m.Spec("sleep", "4321").Process, Timeout: timeout})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("exec with a timeout of %s = %v, want %v", timeout, err, context.DeadlineExceeded)
		}
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("exec with a timeout of %s took %s, want at most 8s", timeout, took)
		}
		got, err := r.ExecSync(ctx, oci.ExecRequest{ID: "app", Process: m.Spec("ps", "-o", "args").Process})
		must(t, "ps", err)
		if !strings.Contains(string(got.Stdout), "sleep 1000") || strings.Contains(string(got.Stdout), "4321") {
			t.Errorf("after a timeout of %s these run, want sleep 1000 and not sleep 4321:\n%s", timeout, got.Stdout)
		}
	}
}

// TestGVisorDaemonDies: pods and their logs go on, exec and exit codes work under the next daemon.
func TestGVisorDaemonDies(t *testing.T) {
	m, first, app := gvisorPod(t)
	ctx := limit(t)
	path := filepath.Join(m.LogDir, "ticks.log")
	start(t, first, oci.CreateRequest{
		ID: "ticks", PodID: "pod", Log: ocitest.LogAt(path),
		Spec: m.Spec(sh("trap 'exit 6' TERM; while :; do echo tick; sleep 0.05; done")...),
	})
	until(t, "it ticks", func() bool { return strings.Contains(readLog(path), "tick") })
	must(t, "close", first.Close())
	before := strings.Count(readLog(path), "tick")
	until(t, "it goes on", func() bool { return strings.Count(readLog(path), "tick") > before+3 })
	second := m.open(t)
	got, err := second.ExecSync(ctx, oci.ExecRequest{ID: app.ID, Process: m.Spec("echo", "hello").Process})
	if err != nil || string(got.Stdout) != "hello\n" {
		t.Errorf("exec = %q, %v, want %q", got.Stdout, err, "hello\n")
	}
	must(t, "stop", second.Signal(ctx, "ticks", syscall.SIGTERM))
	if exit, err := second.Wait(ctx, "ticks"); err != nil || exit.Code != 6 || !exit.Known {
		t.Errorf("exit = %+v, %v, want code 6, known", exit, err)
	}
	for _, id := range []string{"ticks", "app", "pod"} {
		must(t, "delete "+id, second.Delete(ctx, id))
	}
}

// TestLongRunDirectory: a run directory may have a path that is too long for a socket's. gVisor's shim ends with its
// pod when it cannot post an event, as that of a container's exit.
func TestLongRunDirectory(t *testing.T) {
	for name, handler := range map[string]func(testing.TB) *machine{
		"gVisor": gvisorMachine, "runc": runcMachine, "vm": vmMachine,
	} {
		t.Run(name, func(t *testing.T) {
			m := handler(t)
			m.cfg.RunDir = filepath.Join(m.cfg.RunDir, strings.Repeat("d", 100))
			must(t, "make the run directory", os.MkdirAll(m.cfg.RunDir, 0o700))
			defer os.Remove(m.cfg.RunDir) // if it is empty; else the test says what is left
			r := m.open(t)
			start(t, r, oci.CreateRequest{ID: "pod", PodID: "pod", Spec: m.Spec("sleep", "100000")})
			start(t, r, oci.CreateRequest{ID: "app", PodID: "pod", Spec: m.Spec(sh("exit 3")...)})
			if exit, err := r.Wait(limit(t), "app"); err != nil || exit.Code != 3 || !exit.Known {
				t.Errorf("exit = %+v, %v, want code 3, known", exit, err)
			}
			must(t, "delete app", r.Delete(limit(t), "app"))
			if s, err := r.State(limit(t), "pod"); err != nil || s.Status != oci.Running {
				t.Errorf("the pod is %s, %v, want %s", s.Status, err, oci.Running)
			}
			must(t, "delete pod", r.Delete(limit(t), "pod"))
		})
	}
}

// TestGVisorSandboxKilled: the containers of that pod have ended, and all of it can be deleted.
func TestGVisorSandboxKilled(t *testing.T) {
	m, r, _ := gvisorPod(t)
	ctx := limit(t)
	exits := make(chan oci.Exit, 2)
	for _, id := range []string{"pod", "app"} {
		go func() {
			exit, err := r.Wait(ctx, id)
			if err != nil {
				t.Errorf("wait for %s: %v", id, err)
			}
			exits <- exit
		}()
	}
	sandbox := m.processes(t, "pod")
	must(t, "kill the sandbox", sandbox.Init.Kill(ctx))
	for range 2 {
		if exit := <-exits; exit.Code != 137 {
			t.Errorf("exit = %+v, want code 137", exit)
		}
	}
	must(t, "delete app", r.Delete(ctx, "app"))
	must(t, "delete pod", r.Delete(ctx, "pod"))
	if sandbox.Shim.Alive() {
		t.Error("the shim outlives its pod")
	}
}

// TestDaemonDiesDuringExec: the next daemon that watches the container ends the command, which has no caller any more.
func TestDaemonDiesDuringExec(t *testing.T) {
	m := runcMachine(t)
	first, ctx := m.open(t), limit(t)
	start(t, first, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	asked := make(chan error, 1)
	go func() {
		_, err := first.ExecSync(ctx, oci.ExecRequest{ID: "c", Process: m.Spec("sleep", "1234").Process})
		asked <- err
	}()
	list := func(r *shim.Runtime) string {
		got, err := r.ExecSync(ctx, oci.ExecRequest{ID: "c", Process: m.Spec("ps").Process})
		must(t, "ps", err)
		return string(got.Stdout)
	}
	until(t, "the command runs", func() bool { return strings.Contains(list(m.open(t)), "sleep 1234") })
	// A daemon that dies removes nothing; this one has to be kept from it.
	pipes, err := filepath.Glob(filepath.Join(m.cfg.RunDir, "c", "exec-*", "podd-stdout"))
	if err != nil || len(pipes) != 1 {
		t.Fatalf("pipes of execs = %v, %v, want one", pipes, err)
	}
	dir := filepath.Dir(pipes[0])
	must(t, "close", first.Close())
	if err := <-asked; err == nil {
		t.Error("exec of a closed handler succeeded, want an error")
	}
	must(t, "restore", os.MkdirAll(dir, 0o700))

	second := m.open(t)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_, _ = second.Wait(watching, "c")
	}()
	until(t, "it is gone", func() bool { return !strings.Contains(list(second), "sleep 1234") })
	until(t, "its files are gone", func() bool { _, err := os.Lstat(dir); return err != nil })
	stop()
	<-watched
}
