package ocitest

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
)

// TerminalInput wants the end of a client's input to leave a terminal alone: its user types ^D.
func TerminalInput(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	const script = "read x; sleep 0.5; echo got $x; exit 5"
	s := h.Spec("sh", "-c", script)
	s.Process.Terminal = true
	create(t, r, oci.CreateRequest{ID: "c", Spec: s, Terminal: true, Stdin: true, StdinOnce: true})
	must(t, "start", r.Start(limit(t), "c"))
	var out Output
	if err := r.Attach(limit(t), "c", oci.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &out}); err != nil {
		t.Errorf("attach: %v", err)
	}
	exit, err := r.Wait(limit(t), "c")
	if err != nil || exit.Code != 5 || !strings.Contains(out.String(), "got hello") {
		t.Errorf("attach: exit = %+v, %v, output %q, want code 5 after the input", exit, err, out.String())
	}

	attachTwice(t, h, r)

	run(t, h, r, "e", "sleep", "1000")
	p := process(h, "sh", "-c", script)
	p.Terminal = true
	var execOut Output
	code, err := r.Exec(limit(t), "e", p, oci.Streams{Stdin: strings.NewReader("hello\n"), Stdout: &execOut})
	if err != nil || code != 5 || !strings.Contains(execOut.String(), "got hello") {
		t.Errorf("exec = %d, %v, output %q, want 5 after the input", code, err, execOut.String())
	}
}

// attachTwice wants a client to type into a terminal that another one has left, also with StdinOnce.
func attachTwice(t *testing.T, h *Harness, r Runtime) {
	t.Helper()
	s := h.Spec("sh", "-c", "while read x; do echo got $x; done")
	s.Process.Terminal = true
	create(t, r, oci.CreateRequest{ID: "twice", Spec: s, Terminal: true, Stdin: true, StdinOnce: true})
	must(t, "start", r.Start(limit(t), "twice"))
	for _, word := range []string{"first", "second"} {
		ctx, leave := context.WithCancelCause(limit(t))
		in, user := io.Pipe()
		defer user.Close()
		gone, attached := errors.New("client is gone"), make(chan error, 1)
		var out Output
		go func() { attached <- r.Attach(ctx, "twice", oci.Streams{Stdin: in, Stdout: &out}) }()
		go func() { _, _ = io.WriteString(user, word+"\n") }()
		out.WaitFor(t, "got "+word)
		leave(gone)
		if err := <-attached; !errors.Is(err, gone) {
			t.Errorf("attach of the %s client that left = %v, want %v", word, err, gone)
		}
	}
}

// KillFrozen wants SIGKILL to end a frozen container at once.
func KillFrozen(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	must(t, "pause", r.Pause(limit(t), "c"))
	begin := time.Now()
	must(t, "kill", r.Signal(limit(t), "c", syscall.SIGKILL))
	exit, err := r.Wait(limit(t), "c")
	if took := time.Since(begin); err != nil || exit.Code != 137 || took > 10*time.Second {
		t.Errorf("exit = %+v, %v after %s, want code 137, soon", exit, err, took)
	}
}
