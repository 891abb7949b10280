package initproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// runtimeScript plays a runtime: it records its arguments, and the files in its root control it.
const runtimeScript = `#!/bin/sh
root=${1#--root=}
shift
echo "$*" >>$root/calls
umask >>$root/umasks
case $1 in
create) [ ! -e $root/refuse ] || { echo "no such image" >&2; exit 3; } ;;
start) [ ! -e $root/broken ] || exit 4; echo "out of the container"; echo "err of the container" >&2 ;;
wait) while [ ! -e $root/ended ]; do sleep 0.01; done; cat $root/ended; [ -s $root/ended ] ;;
esac
`

// stage is an init proxy with a fake runtime.
type stage struct{ program, script, root, bundle string }

func newStage(t *testing.T) stage {
	t.Helper()
	dir := t.TempDir()
	s := stage{
		script: filepath.Join(dir, "runtime"), root: filepath.Join(dir, "root"),
		bundle: filepath.Join(dir, strings.Repeat("b", 120)),
	}
	for _, d := range []string{s.root, s.bundle} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.script, []byte(runtimeScript), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.program, err = Install(dir); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s stage) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.root, name+".new"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.root, name+".new"), filepath.Join(s.root, name)); err != nil {
		t.Fatal(err)
	}
}

// create does what conmon does, as the init proxy's subreaper, and returns the init proxy and its output.
func (s stage) create(t *testing.T, flags ...string) (pid int, output *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	pidFile := filepath.Join(s.bundle, "pidfile")
	cmd := exec.Command(s.program, append(flags, s.script, "--root="+s.root, "--", "create",
		"--bundle", s.bundle, "--pid-file", pidFile, "the-id")...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(string(data)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid, r
}

// start connects to the init proxy and returns its answer.
func (s stage) start(t *testing.T) byte {
	t.Helper()
	dir, err := os.Open(s.bundle)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	conn, err := net.Dial("unix", "/proc/self/fd/"+strconv.Itoa(int(dir.Fd()))+"/start")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	if err != nil || len(answer) != 1 {
		t.Fatalf("answer = %v, %v, want one byte", answer, err)
	}
	return answer[0]
}

// end waits for the init proxy, which was reparented to this process.
func end(t *testing.T, pid int) int {
	t.Helper()
	var ws syscall.WaitStatus
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got == pid {
			return ws.ExitStatus()
		}
		if time.Now().After(deadline) {
			t.Fatal("the init proxy has not exited in time")
		}
	}
}

func TestLife(t *testing.T) {
	becomeSubreaper(t)
	t.Cleanup(func(old int) func() { return func() { syscall.Umask(old) } }(syscall.Umask(0o027)))
	s := newStage(t)
	pid, output := s.create(t)
	// A signal that is meant for the container comes by way of the runtime.
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := s.start(t); code != 0 {
		t.Fatalf("start = %d, want 0", code)
	}
	text, err := io.ReadAll(output) // to its end: the init proxy has closed it, and still runs
	if err != nil || string(text) != "out of the container\nerr of the container\n" {
		t.Errorf("output = %q, %v, want the lines of the container", text, err)
	}
	s.write(t, "ended", `{"id":"the-id","exitStatus":42}`)
	if code := end(t, pid); code != 42 {
		t.Errorf("exit status %d, want 42", code)
	}
	calls, _ := os.ReadFile(filepath.Join(s.root, "calls"))
	if want := "create --bundle " + s.bundle + " the-id\nstart the-id\nwait the-id\n"; string(calls) != want {
		t.Errorf("calls %q, want %q", calls, want)
	}
	umasks, _ := os.ReadFile(filepath.Join(s.root, "umasks"))
	if want := strings.Repeat("0027\n", 3); string(umasks) != want {
		t.Errorf("umasks = %q, want those of the monitor, %q", umasks, want)
	}
	if info, err := os.Stat(filepath.Join(s.bundle, "start")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("socket = %v, %v, want mode 0700", info, err)
	}
}

func TestSandboxDies(t *testing.T) {
	becomeSubreaper(t)
	s := newStage(t)
	pid, _ := s.create(t)
	s.start(t)
	s.write(t, "ended", "")
	if code := end(t, pid); code != 137 {
		t.Errorf("exit status %d, want 137", code)
	}
}

func TestStartFails(t *testing.T) {
	becomeSubreaper(t)
	s := newStage(t)
	pid, _ := s.create(t)
	s.write(t, "broken", "")
	if code := s.start(t); code != 4 {
		t.Errorf("start = %d, want 4", code)
	}
	if code := end(t, pid); code != 128 {
		t.Errorf("exit status %d, want 128", code)
	}
}

func TestCreateFails(t *testing.T) {
	s := newStage(t)
	s.write(t, "refuse", "")
	out, err := exec.Command(s.program, s.script, "--root="+s.root, "--", "create",
		"--bundle", s.bundle, "--pid-file", "x", "the-id").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || string(out) != "no such image\n" {
		t.Errorf("create = %v, %q, want exit status 3, %q", err, out, "no such image\n")
	}
}

func TestOtherVerbs(t *testing.T) {
	s := newStage(t)
	cmd := exec.Command(s.program, s.script, "--root="+s.root, "--", "exec", "--tty", "--detach", "the-id")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if calls, _ := os.ReadFile(filepath.Join(s.root, "calls")); string(calls) != "exec --detach the-id\n" {
		t.Errorf("calls = %q, want %q", calls, "exec --detach the-id\n")
	}
	for _, args := range [][]string{nil, {s.script}, {s.script, "--"}, {"--", "create"}} {
		if err := exec.Command(s.program, args...).Run(); err == nil {
			t.Errorf("arguments %q were accepted, want an error", args)
		}
	}
}

// becomeSubreaper makes this process the one that orphans below it are handed to, as conmon is.
func becomeSubreaper(t *testing.T) {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) })
}

// TestRestore: with --restore the runtime restores the container where it would start it.
func TestRestore(t *testing.T) {
	s := newStage(t)
	s.create(t, "--restore", "/images")
	if code := s.start(t); code != 0 {
		t.Fatalf("answer = %d, want 0", code)
	}
	s.write(t, "ended", `{"id":"the-id","exitStatus":5}`)
	calls, err := os.ReadFile(filepath.Join(s.root, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	want := "create --bundle " + s.bundle + " the-id\nrestore --detach --image-path /images the-id\n"
	if !strings.HasPrefix(string(calls), want) {
		t.Errorf("calls of the runtime = %q, want %q", calls, want)
	}
}
