package runc

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

func TestRunCommand(t *testing.T) {
	script := func(s string) command { return command{Path: "/bin/sh", Args: []string{"-c", s}} }
	out, err := runCommand(t.Context(), command{Path: "/bin/cat", Stdin: strings.NewReader("in")})
	if err != nil || string(out) != "in" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = runCommand(t.Context(), script("echo out; echo 'level=error msg=\"no\"' >&2; exit 3"))
	if err == nil || err.Error() != "sh -c: no" && !strings.HasSuffix(err.Error(), ": no") {
		t.Errorf("%v", err)
	}
	_, err = runCommand(t.Context(), script("exit 3"))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("silent: %v", err)
	}
	if _, err = runCommand(t.Context(), command{Path: "/no/such"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
}

// TestRunCommandDoesNotHang: a grandchild that holds the pipes, and one that outlives its deadline.
func TestRunCommandDoesNotHang(t *testing.T) {
	begin := time.Now()
	out, err := runCommand(t.Context(), command{Path: "/bin/sh", Args: []string{"-c", "echo out; sleep 3 & exit 0"}})
	if err != nil || string(out) != "out\n" {
		t.Errorf("%q, %v", out, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = runCommand(ctx, command{Path: "/bin/sh", Args: []string{"-c", "sleep 30 & sleep 31"}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
}

// TestRunCommandThatCannotBeKilled freezes a runtime, which then survives SIGKILL as one does that is stuck in the
// kernel: its caller is let go.
func TestRunCommandThatCannotBeKilled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("cgroups need root")
	}
	group, err := os.MkdirTemp("/sys/fs/cgroup/freezer", "podd-test-")
	if err != nil {
		t.Skipf("cgroup v2 lets frozen processes die: %v", err)
	}
	thaw := func() { _ = os.WriteFile(group+"/freezer.state", []byte("THAWED"), 0) }
	t.Cleanup(func() {
		thaw()
		for os.Remove(group) != nil {
			time.Sleep(time.Millisecond)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			procs, _ := os.ReadFile(group + "/cgroup.procs")
			state, _ := os.ReadFile(group + "/freezer.state")
			if len(procs) > 0 && string(state) == "FROZEN\n" {
				return
			}
		}
		t.Error("the runtime is not frozen")
	}()
	returned := make(chan error, 1)
	go func() {
		script := "echo $$ >" + group + "/cgroup.procs; echo FROZEN >" + group + "/freezer.state; sleep 1000"
		_, err := runCommand(ctx, command{Path: "/bin/sh", Args: []string{"-c", script}})
		returned <- err
	}()
	select {
	case err := <-returned:
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errUnkillable) {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the caller hangs with the runtime")
		thaw()
		<-returned
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
		if got := verb(command{Path: "/bin/rt", Args: tt.args}); got != tt.want {
			t.Errorf("%v: %q", tt.args, got)
		}
	}
}

func TestCapped(t *testing.T) {
	c := &capped{limit: 5}
	for _, s := range []string{"abc", "def", "ghi"} {
		if n, err := c.Write([]byte(s)); n != 3 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if got := c.buf.String(); got != "abcde" {
		t.Errorf("%q", got)
	}
}

// TestEnvironmentIsSmall: what the daemon holds in its environment does not reach hooks.
func TestEnvironmentIsSmall(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("TZ", "UTC")
	env := strings.Join(New(Config{}).environment(), "\n")
	if strings.Contains(env, "secret") || !strings.Contains(env, "TZ=UTC") || !strings.Contains(env, "PATH=") {
		t.Errorf("%s", env)
	}
}
