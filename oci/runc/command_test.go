package runc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestRunCommand(t *testing.T) {
	script := func(s string) *exec.Cmd { return exec.Command("/bin/sh", "-c", s) }
	cat := exec.Command("/bin/cat")
	cat.Stdin = strings.NewReader("in")
	out, err := runCommand(t.Context(), cat)
	if err != nil || string(out) != "in" {
		t.Errorf("output = %q, %v, want %q", out, err, "in")
	}
	_, err = runCommand(t.Context(), script("echo out; echo 'level=error msg=\"no\"' >&2; exit 3"))
	if err == nil || err.Error() != "sh -c: no" && !strings.HasSuffix(err.Error(), ": no") {
		t.Errorf("error = %v, want one that ends with %q", err, ": no")
	}
	_, err = runCommand(t.Context(), script("exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error of a silent command = %v, want exit status 3 in it", err)
	}
	if _, err = runCommand(t.Context(), exec.Command("/no/such")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error of a missing command = %v, want %v", err, os.ErrNotExist)
	}
}

// TestRunCommandDoesNotHang: a grandchild that holds the pipes, and one that outlives its deadline.
func TestRunCommandDoesNotHang(t *testing.T) {
	begin := time.Now()
	out, err := runCommand(t.Context(), exec.Command("/bin/sh", "-c", "echo out; sleep 3 & exit 0"))
	if err != nil || string(out) != "out\n" {
		t.Errorf("output = %q, %v, want %q", out, err, "out\n")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = runCommand(ctx, exec.Command("/bin/sh", "-c", "sleep 30 & sleep 31"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v, want %v", err, context.DeadlineExceeded)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("both commands took %s, want at most 10s", took)
	}
}

func TestVerb(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--root", "/r", "--systemd-cgroup", "delete", "--force", "c"}, "rt delete"},
		{[]string{"--version"}, "rt"},
		{nil, "rt"},
	} {
		if got := commandName("/bin/rt", tt.args); got != tt.want {
			t.Errorf("commandName of %q = %q, want %q", tt.args, got, tt.want)
		}
	}
}
