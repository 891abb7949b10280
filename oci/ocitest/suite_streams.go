package ocitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

func testExecStreams(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "streams", "sleep", "1000")
	for _, tt := range []struct {
		args   []string
		stdin  io.Reader
		stdout string
		code   int32
	}{
		{[]string{"echo", "hello"}, nil, "hello\n", 0},
		{[]string{"cat"}, strings.NewReader("to be copied"), "to be copied", 0},
		{[]string{"cat"}, nil, "", 0},
		{[]string{"sh", "-c", "exit 7"}, nil, "", 7},
	} {
		var stdout, stderr bytes.Buffer
		streams := oci.Streams{Stdin: tt.stdin, Stdout: &stdout, Stderr: &stderr}
		code, err := r.Exec(ctx, "streams", process(h, tt.args...), streams)
		must(t, "exec", err)
		if stdout.String() != tt.stdout || stderr.Len() > 0 || code != tt.code {
			t.Errorf("Exec(%v) = %d, stdout %q, stderr %q; want %d, %q and none",
				tt.args, code, stdout.String(), stderr.String(), tt.code, tt.stdout)
		}
	}
	_, err := r.Exec(ctx, "streams", process(h, "sleep", "0"), oci.Streams{}) // without a reader
	must(t, "exec without streams", err)

	gone := errors.New("client is gone")
	ctx, cancel := context.WithCancelCause(ctx)
	in, client := io.Pipe()
	defer client.Close()
	go func() {
		_, _ = io.WriteString(client, "x") // the command runs
		cancel(gone)
	}()
	_, err = r.Exec(ctx, "streams", process(h, "cat"), oci.Streams{Stdin: in, Stdout: io.Discard})
	if !errors.Is(err, gone) {
		t.Errorf("Exec of a client that is gone = %v, want %v", err, gone)
	}
	wantState(t, r, "streams", oci.Running)
}

// testExecBrokenInput: input that fails is no end of input. The command waits for more, until its session ends.
func testExecBrokenInput(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "broken", "sleep", "1000")
	gone := errors.New("client is gone")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	input := io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(errors.New("connection reset")))
	timer := time.AfterFunc(time.Second, func() { cancel(gone) }) // a command that sees an end has exited by then
	defer timer.Stop()
	code, err := r.Exec(ctx, "broken", process(h, "cat"), oci.Streams{Stdin: input, Stdout: io.Discard})
	if !errors.Is(err, gone) {
		t.Errorf("Exec with broken input = %d, %v, want %v", code, err, gone)
	}
}

func testExecStreamsRefused(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "refuse", "sleep", "1000")
	var stdout, stderr bytes.Buffer
	_, err := r.Exec(ctx, "refuse", process(h, "no-such-command"), oci.Streams{Stdout: &stdout, Stderr: &stderr})
	var c *oci.CommandError
	if !errors.As(err, &c) || c.Code != 127 || stdout.Len()+stderr.Len() > 0 {
		t.Errorf("Exec of a missing command = %v, stdout %q, stderr %q, want a CommandError with code 127, and none",
			err, &stdout, &stderr)
	}
	must(t, "kill", r.Signal(ctx, "refuse", syscall.SIGKILL))
	_, err = r.Wait(ctx, "refuse")
	must(t, "wait", err)
	if _, err = r.Exec(ctx, "refuse", process(h, "true"), oci.Streams{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Exec in an ended container = %v, want a failed precondition", err)
	}
	if err = r.Attach(ctx, "refuse", oci.Streams{}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Attach to an ended container = %v, want a failed precondition", err)
	}
	if err = r.Attach(ctx, "none", oci.Streams{}); !errdefs.IsNotFound(err) {
		t.Errorf("Attach to no container = %v, want not found", err)
	}
}

// testAttach: a client stays until the container ends or it goes itself, which the container does not notice.
func testAttach(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	run(t, h, r, "attach", "sleep", "1000")
	gone := errors.New("client is gone")
	ended, cancel := context.WithCancelCause(ctx)
	cancel(gone)
	if err := r.Attach(ended, "attach", oci.Streams{}); !errors.Is(err, gone) {
		t.Errorf("Attach of a client that is gone = %v, want %v", err, gone)
	}
	wantState(t, r, "attach", oci.Running)
	attached := make(chan error, 1)
	go func() { attached <- r.Attach(ctx, "attach", oci.Streams{Stdout: io.Discard}) }()
	// It is attached, or finds the container ended: both end the call, the first without an error.
	must(t, "kill", r.Signal(ctx, "attach", syscall.SIGKILL))
	if err := <-attached; err != nil && !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Attach until the end = %v, want nil or a failed precondition", err)
	}
}

// testAttachInput: a client's input reaches the container, its output the client, and with StdinOnce the end of the
// input is the container's end of file.
func testAttachInput(t *testing.T, h *Harness) {
	r, ctx := h.New(), limit(t)
	create(t, r, oci.CreateRequest{ID: "input", Spec: h.Spec("cat"), Stdin: true, StdinOnce: true})
	must(t, "start", r.Start(ctx, "input"))
	var out bytes.Buffer
	must(t, "attach", r.Attach(ctx, "input", oci.Streams{Stdin: strings.NewReader("to be copied"), Stdout: &out}))
	if got, want := out.String(), "to be copied"; got != want {
		t.Errorf("Attach wrote %q, want %q", got, want)
	}
	exit, err := r.Wait(ctx, "input")
	must(t, "wait", err)
	if exit.Code != 0 || !exit.Known {
		t.Errorf("exit = %+v, want code 0, known", exit)
	}
}
