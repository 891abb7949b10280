package ocitest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// killedCode is the exit code after SIGKILL.
const killedCode = 128 + int32(syscall.SIGKILL)

// process is a command in the manner of the container's own.
func process(h *Harness, args ...string) *specs.Process { return h.Spec(args...).Process }

func testExec(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "exec", "sleep", "1000")
	for _, tt := range []struct {
		args   []string
		stdout string
		code   int32
	}{
		{[]string{"true"}, "", 0},
		{[]string{"echo", "hello", "world"}, "hello world\n", 0},
		{[]string{"false"}, "", 1},
		{[]string{"sh", "-c", "exit 255"}, "", 255},
		{[]string{"sh", "-c", "exit 126"}, "", 126},
	} {
		got, err := r.ExecSync(ctx, oci.ExecRequest{ID: "exec", Process: process(h, tt.args...)})
		must(t, "exec", err)
		if string(got.Stdout) != tt.stdout || len(got.Stderr) > 0 || got.Code != tt.code {
			t.Errorf("ExecSync(%v) = %d, stdout %q, stderr %q; want %d, %q and none",
				tt.args, got.Code, got.Stdout, got.Stderr, tt.code, tt.stdout)
		}
	}
	got, err := r.ExecSync(ctx, oci.ExecRequest{ID: "exec", Process: process(h, "echo", "hello"), Limit: 3})
	must(t, "exec", err)
	if string(got.Stdout) != "hel" {
		t.Errorf("ExecSync with a limit of 3 bytes wrote %q, want %q", got.Stdout, "hel")
	}
}

func testExecTimeout(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "slow", "sleep", "1000")
	begin := time.Now()
	_, err := r.ExecSync(ctx, oci.ExecRequest{
		ID: "slow", Process: process(h, "sleep", "1000"), Timeout: 300 * time.Millisecond,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ExecSync = %v, want %v", err, context.DeadlineExceeded)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("ExecSync took %s, want about 300ms", took)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("enough"))
	if _, err := r.ExecSync(ctx, oci.ExecRequest{ID: "slow", Process: process(h, "sleep", "1000")}); err == nil {
		t.Error("ExecSync with an ended context = nil, want an error")
	}
	wantState(t, r, "slow", oci.Running)
}

func testExecRefused(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "refuse", "sleep", "1000")
	_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "refuse", Process: process(h, "no-such-command")})
	var c *oci.CommandError
	if !errors.As(err, &c) || c.Code != 127 {
		t.Errorf("ExecSync of a missing command = %v, want a CommandError with code 127", err)
	}
	must(t, "kill", r.Signal(ctx, "refuse", syscall.SIGKILL))
	_, err = r.Wait(ctx, "refuse")
	must(t, "wait", err)
	_, err = r.ExecSync(ctx, oci.ExecRequest{ID: "refuse", Process: process(h, "true")})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("ExecSync in an ended container = %v, want a failed precondition", err)
	}
}

// testExecStopped: a command that is killed because its container is reports so; one that comes too late is refused.
func testExecStopped(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	type answer struct {
		code int32
		err  error
	}
	for round := range 4 {
		id := fmt.Sprint("stopped-", round)
		run(t, h, r, id, "sleep", "1000")
		answers := make(chan answer)
		for range 3 {
			go func() {
				got, err := r.ExecSync(ctx, oci.ExecRequest{ID: id, Process: process(h, "sleep", "1000")})
				answers <- answer{got.Code, err}
			}()
		}
		time.Sleep(time.Duration(round) * 30 * time.Millisecond) // at another moment of their starts
		must(t, "kill", r.Signal(ctx, id, syscall.SIGKILL))
		for range 3 {
			got := <-answers
			if !errdefs.IsFailedPrecondition(got.err) && (got.err != nil || got.code != killedCode) {
				t.Errorf("round %d: ExecSync = %d, %v, want %d or a failed precondition", round, got.code, got.err, killedCode)
			}
		}
	}
}
