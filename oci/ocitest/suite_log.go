package ocitest

import (
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// logLine is one line of a CRI log: time, stream, tag (F full, P partial), text.
var logLine = regexp.MustCompile(
	`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) (F|P) (.*)\n$`,
)

func testLog(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	path := filepath.Join(h.LogDir, "0.log")
	create(t, r, oci.CreateRequest{ID: "log", Spec: h.Spec("echo", "hello", "world"), Log: LogAt(path)})
	must(t, "start", r.Start(ctx, "log"))
	_, err := r.Wait(ctx, "log")
	must(t, "wait", err)
	b, err := os.ReadFile(path)
	must(t, "read log", err)
	m := logLine.FindSubmatch(b)
	if m == nil || string(m[1]) != "stdout" || string(m[2]) != "F" || string(m[3]) != "hello world" {
		t.Errorf("log = %q, want one full line %q of stdout", b, "hello world")
	}
}

func testReopenLog(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	path := filepath.Join(h.LogDir, "1.log")
	create(t, r, oci.CreateRequest{ID: "rot", Spec: h.Spec("sleep", "1000"), Log: LogAt(path)})
	must(t, "start", r.Start(ctx, "rot"))
	must(t, "move", os.Rename(path, path+".old"))
	must(t, "reopen", r.ReopenLog(ctx, "rot"))
	before, err := os.Stat(path)
	must(t, "new log", err)
	if got := before.Mode().Perm(); got != 0o640 {
		t.Errorf("mode of the new log = %o, want 640", got)
	}

	must(t, "reopen a log that was not moved", r.ReopenLog(ctx, "rot"))
	after, err := os.Stat(path)
	must(t, "log", err)
	if !os.SameFile(before, after) {
		t.Error("reopen replaced a log that was not moved, want the same file")
	}

	must(t, "kill", r.Signal(ctx, "rot", syscall.SIGKILL))
	_, err = r.Wait(ctx, "rot")
	must(t, "wait", err)
	must(t, "move", os.Rename(path, path+".older"))
	if err := r.ReopenLog(ctx, "rot"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("reopen after the exit = %v, want a failed precondition", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a failed reopen left a new file, want none")
	}

	create(t, r, oci.CreateRequest{ID: "nolog", Spec: h.Spec("sleep", "1000")})
	must(t, "reopen of no log", r.ReopenLog(ctx, "nolog"))
}
