package conmon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestArgs(t *testing.T) {
	base := Container{
		ID: "c", Name: "web", Bundle: "/b", Log: os.Stderr,
		Runtime: Runtime{Path: "/bin/rt", Args: []string{"--root", "/r", "--systemd-cgroup"}},
	}
	has := func(c Container, want ...string) bool {
		args, err := c.args()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains("\x00"+strings.Join(args, "\x00")+"\x00", "\x00"+strings.Join(want, "\x00")+"\x00")
	}
	for _, want := range [][]string{
		{"--cid", "c"}, {"--name", "web"}, {"--cuuid", "c"}, {"--bundle", "/b"}, {"--persist-dir", "/b"}, {"--full-attach"},
		{"--log-path", "/b/log"}, {"--container-pidfile", "/b/pidfile"}, {"--conmon-pidfile", "/b/conmon.pid"},
		{"--runtime", "/bin/rt", "--runtime-arg=--root", "--runtime-arg=/r", "--runtime-arg=--systemd-cgroup"},
	} {
		if !has(base, want...) {
			t.Errorf("arguments lack %q", want)
		}
	}
	for _, no := range []string{"--terminal", "--stdin", "--leave-stdin-open"} {
		if has(base, no) {
			t.Errorf("arguments contain %s, want them not to", no)
		}
	}
	for _, name := range []string{"", "-h", "--help", "a b", "a\nb", "../x"} {
		odd := base
		if odd.Name = name; has(odd, "--name") {
			t.Errorf("arguments for a container named %q contain --name", name)
		}
	}
	tty := base
	tty.Terminal, tty.Stdin = true, true
	if !has(tty, "--terminal") || !has(tty, "--stdin", "--leave-stdin-open") {
		t.Error("arguments lack --terminal, --stdin or --leave-stdin-open")
	}
	tty.StdinOnce = true
	if !has(tty, "--stdin", "--leave-stdin-open") {
		t.Error("arguments with a terminal and StdinOnce lack --stdin or --leave-stdin-open")
	}
	once := tty
	once.Terminal = false
	if !has(once, "--stdin") || has(once, "--leave-stdin-open") {
		t.Error("arguments with StdinOnce: want --stdin and no --leave-stdin-open")
	}
	restored := base
	restored.Restore, restored.RestoreFlags = "/images", []string{"--work-path", "/w"}
	if has(base, "--restore") || !has(restored, "--restore", "/images", "--runtime-opt=--work-path", "--runtime-opt=/w") {
		t.Error("arguments for a container to restore: want --restore with its flags, and not for another")
	}
	silent := base
	silent.Log = nil
	if !has(silent, "--log-path", "none") {
		t.Error("arguments without a log lack --log-path none")
	}
	bad := base
	bad.Bundle = "/run/a:b"
	if err := bad.Validate(); !errors.Is(err, ErrLogPath) || !errdefs.IsInvalidArgument(err) {
		t.Errorf("Validate of a bundle with a colon = %v, want %v", err, ErrLogPath)
	}
}

func TestParseAnswer(t *testing.T) {
	for line, want := range map[string]answer{
		`{"pid": 42}`: {value: 42},
		`{"data": 7}`: {value: 7},
		`{"data": 0}`: {value: 0},
		`{"pid": -1, "message": "no \"x\"\n\u001b"}`: {value: -1, Message: "no \"x\"\n\x1b"},
		`{"pid": 1, "new": true}`:                    {value: 1},
	} {
		got, err := parseAnswer([]byte(line))
		if err != nil || got.value != want.value || got.Message != want.Message {
			t.Errorf("parseAnswer(%s) = %+v, %v, want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "{}", `{"pid": "x"}`, `{"message": "x"}`, "[]", "null", `{"pid": 1`} {
		if got, err := parseAnswer([]byte(line)); err == nil {
			t.Errorf("parseAnswer(%s) = %+v, want an error", line, got)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"pid": -1, "message": "\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = parseAnswer(b) })
}

func TestSyncPipe(t *testing.T) {
	pipe := func() (*syncPipe, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return newSyncPipe(r), w
	}
	s, w := pipe()
	_, _ = w.WriteString("{\"data\": 1}\n{\"data\": 2}\n")
	for want := 1; want <= 2; want++ {
		if a, err := s.read(t.Context()); err != nil || a.value != want {
			t.Errorf("read = %+v, %v, want %d", a, err, want)
		}
	}
	w.Close()
	var f *Failure
	if _, err := s.read(t.Context()); !errors.As(err, &f) || f.Text != "" {
		t.Errorf("read at the end = %v, want a Failure without text", err)
	}

	s, w = pipe()
	go func() { _, _ = w.WriteString(strings.Repeat("x", answerLimit+1)) }() // more than the pipe holds
	if _, err := s.read(t.Context()); err == nil || errors.As(err, &f) {
		t.Errorf("read of a line over the limit = %v, want an error, not the end of conmon", err)
	}

	s, _ = pipe()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read without an answer = %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestReadExit(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := ReadExit(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadExit without a file = %v, want %v", err, fs.ErrNotExist)
	}
	path := filepath.Join(dir, "exit")
	at := time.Unix(1_700_000_000, 0)
	for text, want := range map[string]int32{"0": 0, "137": 137, "-1": -1, " 3\n": 3} {
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		code, when, err := ReadExit(dir)
		if err != nil || code != want || !when.Equal(at) {
			t.Errorf("ReadExit of %q = %d, %s, %v, want %d, %s", text, code, when, err, want, at)
		}
	}
	for _, text := range []string{"", "x", "99999999999"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadExit(dir); err == nil {
			t.Errorf("ReadExit of %q succeeded, want an error", text)
		}
	}
}

func TestOOM(t *testing.T) {
	dir := t.TempDir()
	if OOM(dir) {
		t.Error("OOM without the file = true, want false")
	}
	if err := os.WriteFile(filepath.Join(dir, "oom"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if !OOM(dir) {
		t.Error("OOM with the file = false, want true")
	}
}

func TestControl(t *testing.T) {
	dir := t.TempDir()
	if err := control(dir, reopenMessage, 0, 0); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Reopen without a fifo = %v, want a failed precondition", err)
	}
	path := filepath.Join(dir, "ctl")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := control(dir, reopenMessage, 0, 0); !errdefs.IsFailedPrecondition(err) { // and does not block
		t.Errorf("Reopen without a reader = %v, want a failed precondition", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(control(dir, reopenMessage, 0, 0), Resize(dir, 80, 24), Resize(dir, 5000, 65535)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := f.Read(buf)
	want := "2 0 0\n1 24 80\n1 1000 1000\n"
	if err != nil || string(buf[:n]) != want {
		t.Errorf("commands = %q, %v, want %q", buf[:n], err, want)
	}
	reopen := func() error { return control(dir, reopenMessage, 0, 0) }
	if err := errors.Join(reopen(), Resize(dir, 80, 24), reopen()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(takeBack(dir, reopenMessage), takeBack(t.TempDir(), reopenMessage)); err != nil {
		t.Fatal(err)
	}
	n, err = f.Read(buf)
	if want := "1 24 80\n"; err != nil || string(buf[:n]) != want {
		t.Errorf("commands after those to reopen were taken back = %q, %v, want %q", buf[:n], err, want)
	}
	if err := takeBack(dir, reopenMessage); err != nil { // and does not block
		t.Errorf("takeBack of nothing: %v, want nil", err)
	}
}

// TestControlOfEnded: the monitor ends between the opening of its FIFO and the write.
func TestControlOfEnded(t *testing.T) {
	monitor, f, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	monitor.Close()
	if err := send(f, reopenMessage, 0, 0); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("send = %v, want a failed precondition", err)
	}
}

func TestWatches(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "echo; read line", "--bundle", "/run/x")
	out, outErr := cmd.StdoutPipe()
	_, inErr := cmd.StdinPipe() // stays open, so that the shell waits
	if err := errors.Join(outErr, inErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	// Start returns when the kernel has closed the descriptors, a moment before it has put the command line in place.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for _, c := range []struct {
		pid    int
		bundle string
		want   bool
	}{
		{pid, "/run/x", true}, {pid, "/run/", false}, {pid, "/run/x2", false}, {pid, "", false},
		{os.Getpid(), "/run/x", false}, {1 << 29, "/run/x", false},
	} {
		if got := Watches(c.pid, c.bundle); got != c.want {
			t.Errorf("Watches(%d, %q) = %v, want %v (%d is the monitor)", c.pid, c.bundle, got, c.want, pid)
		}
	}
}

func TestSocketDir(t *testing.T) {
	for dir, want := range map[string]bool{
		"/run/podd/containers/" + strings.Repeat("a", 64): true,
		"/" + strings.Repeat("a", 100):                    false,
		"":                                                false,
	} {
		if got := socketDir(dir) != ""; got != want {
			t.Errorf("socketDir of %d characters found: %v, want %v", len(dir), got, want)
		}
	}
}

// TestConmonRefuses: the errors that conmon reports before it forks are returned.
func TestConmonRefuses(t *testing.T) {
	path, err := exec.LookPath("conmon")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := Container{Conmon: path, ID: "c", Bundle: dir, Runtime: Runtime{Path: "/no/such/runtime"}}
	if _, err := Create(t.Context(), c); err == nil || !strings.Contains(err.Error(), "/no/such/runtime") {
		t.Errorf("Create = %v, want an error that names /no/such/runtime", err)
	}
	c.Conmon = "/no/such/conmon"
	if _, err := Create(t.Context(), c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Create without conmon = %v, want %v", err, fs.ErrNotExist)
	}
	entries, err := os.ReadDir(dir)
	isSocketDir := func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), "conmon-term") }
	if err != nil || slices.ContainsFunc(entries, isSocketDir) {
		t.Errorf("files = %v, %v, want no conmon-term directory", entries, err)
	}
}
