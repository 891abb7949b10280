package starter

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// newFIFO makes a FIFO in a directory like that of a runtime's state.
func newFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exec.fifo")
	must(t, "chmod", os.Chmod(filepath.Dir(path), 0o711))
	must(t, "mkfifo", unix.Mkfifo(path, 0o622))
	return path
}

// fallback is a command that prints, and exits with 42.
func fallback() []string {
	return []string{"/bin/sh", "-c", "echo instead $0 >&2; exit 42", "argument"}
}

// run runs the program and returns its exit code and stderr.
func run(t *testing.T, args ...string) (code int, stderr string) {
	t.Helper()
	path, err := Install(t.TempDir())
	must(t, "install", err)
	var text strings.Builder
	cmd := exec.Command(path, args...)
	cmd.Stderr = &text
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), text.String()
}

// living starts a process, which ends after a time, or with the test.
func living(t *testing.T, seconds string) int {
	t.Helper()
	cmd := exec.Command("sleep", seconds)
	must(t, "start a process", cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// wantStarted wants that the program has released the process and removed the FIFO, without the command.
func wantStarted(t *testing.T, method Method, fifo string) {
	t.Helper()
	if code, text := run(t, Args(method, fifo, living(t, "100"), fallback()...)...); code != 0 || text != "" {
		t.Errorf("%s: exit code %d, stderr %q, want 0 and nothing", method, code, text)
	}
	if _, err := os.Lstat(fifo); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: the FIFO is there (%v), want it removed", method, err)
	}
}

// wantFallback wants that the program has executed the command in place of releasing pid, and left the FIFO.
func wantFallback(t *testing.T, what string, method Method, fifo string, pid int) {
	t.Helper()
	before, _ := os.Lstat(fifo)
	code, text := run(t, Args(method, fifo, pid, fallback()...)...)
	if code != 42 || text != "instead argument\n" {
		t.Errorf("%s: exit code %d, stderr %q, want 42 and that of the command", what, code, text)
	}
	if after, _ := os.Lstat(fifo); before != nil && (after == nil || !os.SameFile(before, after)) {
		t.Errorf("%s: the FIFO is gone, want it left to the command", what)
	}
}

// TestRead releases a process that writes, which comes late.
func TestRead(t *testing.T) {
	fifo := newFIFO(t)
	wrote := make(chan error)
	go func() {
		time.Sleep(50 * time.Millisecond)
		wrote <- os.WriteFile(fifo, []byte("0"), 0)
	}()
	wantStarted(t, Read, fifo)
	must(t, "the process writes", <-wrote)
}

// TestWrite releases a process that reads.
func TestWrite(t *testing.T) {
	fifo := newFIFO(t)
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, "open", err)
	defer f.Close()
	wantStarted(t, Write, fifo)
	if n, err := f.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("the process has read %d bytes, %v, want 1", n, err)
	}
}

// wantStartedAfter wants that a process is released that does something between its open of the FIFO and its write.
func wantStartedAfter(t *testing.T, between func(fifo string) error) {
	t.Helper()
	fifo := newFIFO(t)
	wrote := make(chan error)
	go func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // returns when the starter has opened the other end
		if err == nil {
			errBetween := between(fifo)
			_, errWrite := f.WriteString("0")
			err = errors.Join(errBetween, errWrite, f.Close())
		}
		wrote <- err
	}()
	wantStarted(t, Read, fifo)
	must(t, "the process writes", <-wrote)
}

// TestRemovedMeanwhile: podd removes the FIFO when it sees that the process was released.
func TestRemovedMeanwhile(t *testing.T) { wantStartedAfter(t, os.Remove) }

// TestLateProcess: a process that was stopped goes on at last. The command, which would be in its way, is not executed.
func TestLateProcess(t *testing.T) {
	wantStartedAfter(t, func(string) error {
		time.Sleep(3 * time.Second)
		return nil
	})
}

// TestFullPipe: what cannot be written is left to the command, which has the usual signals.
func TestFullPipe(t *testing.T) {
	fifo := newFIFO(t)
	f, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, "open", err)
	defer f.Close()
	for n := 1; n > 0; {
		n, _ = unix.Write(int(f.Fd()), make([]byte, 4096))
	}
	wantFallback(t, "a full pipe", Write, fifo, living(t, "100"))
	if code, _ := run(t, Args(Write, fifo, living(t, "100"), "/bin/sh", "-c", "kill -PIPE $$; exit 1")...); code != -1 {
		t.Errorf("exit code after SIGPIPE = %d, want an end by the signal", code)
	}
}

// TestFallback has the command executed wherever the process cannot be released.
func TestFallback(t *testing.T) {
	dir, fifo := t.TempDir(), newFIFO(t)
	regular, link := filepath.Join(dir, "regular"), filepath.Join(dir, "link")
	must(t, "write", os.WriteFile(regular, []byte("0"), 0o600))
	must(t, "link", os.Symlink(newFIFO(t), link))
	silent := newFIFO(t)
	go func() { // a process that dies before it writes
		if f, err := os.OpenFile(silent, os.O_WRONLY, 0); err == nil {
			f.Close()
		}
	}()
	wantFallback(t, "no process", Read, fifo, 1<<22+1) // more than the largest pid
	wantFallback(t, "the process has ended, and is a zombie", Read, fifo, living(t, "0"))
	wantFallback(t, "the process ends", Read, fifo, living(t, "0.3"))
	wantFallback(t, "the writer dies", Read, silent, living(t, "0.3"))
	alive := living(t, "100")
	wantFallback(t, "nobody reads", Write, fifo, alive)
	for _, method := range []Method{Read, Write} {
		wantFallback(t, "no FIFO", method, filepath.Join(dir, "none"), alive)
		wantFallback(t, "a regular file", method, regular, alive)
		wantFallback(t, "a link", method, link, alive)
	}
	if b, err := os.ReadFile(regular); err != nil || string(b) != "0" {
		t.Errorf("the regular file has %q, %v, want it unchanged", b, err)
	}
}

// TestEndAfterByte: a process that has ended right after its byte was released.
func TestEndAfterByte(t *testing.T) {
	fifo := newFIFO(t)
	path, err := Install(t.TempDir())
	must(t, "install", err)
	init := exec.Command("sh", "-c", `echo 0 >"$0"`, fifo) // a zombie afterwards
	must(t, "start a process", init.Start())
	defer func() { _ = init.Wait() }()
	out, err := exec.Command(path, Args(Read, fifo, init.Process.Pid, fallback()...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("starter = %v, %q, want success", err, out)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"read", "/none", "1"}, {"open", "/none", "1", "/bin/true"}} {
		if code, text := run(t, args...); code != 2 || !strings.Contains(text, "usage") {
			t.Errorf("%q: exit code %d, %q, want 2 and the usage", args, code, text)
		}
	}
	code, text := run(t, "write", "/none", "1", "/no/such/program")
	if code != 1 || !strings.Contains(text, "/no/such/program") {
		t.Errorf("exit code %d, %q, want 1 and the program's name", code, text)
	}
}

// TestKeptFIFO: a FIFO that cannot be removed is an error, but the process is not released twice.
func TestKeptFIFO(t *testing.T) {
	fifo := newFIFO(t)
	if err := unix.Mount(filepath.Dir(fifo), filepath.Dir(fifo), "", unix.MS_BIND, ""); err != nil {
		t.Skipf("bind mount: %v", err)
	}
	defer func() { _ = unix.Unmount(filepath.Dir(fifo), unix.MNT_DETACH) }()
	f, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, "open", err)
	defer f.Close()
	must(t, "remount", unix.Mount("", filepath.Dir(fifo), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	code, text := run(t, Args(Write, fifo, living(t, "100"), fallback()...)...)
	if code != 1 || !strings.Contains(text, fifo) {
		t.Errorf("exit code %d, %q, want 1 and the FIFO's name", code, text)
	}
	must(t, "poll", waitByte(f))
}

func waitByte(f *os.File) error {
	n, err := syscall.Read(int(f.Fd()), make([]byte, 8))
	if n != 1 || err != nil {
		return fmt.Errorf("read %d bytes, %w, want 1", n, err)
	}
	return nil
}
