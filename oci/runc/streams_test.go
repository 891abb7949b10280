package runc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc"
)

func running(t *testing.T, m *ocitest.Machine) *runc.Runtime {
	t.Helper()
	r := runc.New(m.Config)
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	return r
}

func TestExecStreams(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := running(t, m)
		var out, errs ocitest.Output
		code, err := r.Exec(limit(t), "c", m.Spec(sh("cat; echo err >&2; exit 9")...).Process,
			oci.Streams{Stdin: strings.NewReader("to be copied"), Stdout: &out, Stderr: &errs})
		if err != nil || code != 9 || out.String() != "to be copied" || errs.String() != "err\n" {
			t.Errorf("exec = %d, %v, %q, %q, want 9, nil, %q, %q",
				code, err, out.String(), errs.String(), "to be copied", "err\n")
		}
		code, err = r.Exec(limit(t), "c", m.Spec("cat").Process, oci.Streams{})
		if err != nil || code != 0 {
			t.Errorf("exec without streams = %d, %v, want 0, nil", code, err)
		}
		_, err = r.Exec(limit(t), "c", m.Spec("nosuch").Process, oci.Streams{Stdout: &out})
		if !errors.Is(err, oci.ErrCommand) {
			t.Errorf("exec of a missing command = %v, want %v", err, oci.ErrCommand)
		}
		begin := time.Now()
		code, err = r.Exec(limit(t), "c", m.Spec(sh("sleep 1000 & exit 3")...).Process, oci.Streams{Stdout: &out})
		if err != nil || code != 3 || time.Since(begin) > 30*time.Second {
			t.Errorf("exec with a child left behind = %d, %v after %s, want 3, nil within 30s", code, err, time.Since(begin))
		}
	})
}

func TestExecLargeInputAndOutput(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, data := running(t, m), bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MiB
		var out ocitest.Output
		code, err := r.Exec(limit(t), "c", m.Spec("cat").Process, oci.Streams{Stdin: bytes.NewReader(data), Stdout: &out})
		if err != nil || code != 0 || out.String() != string(data) {
			t.Errorf("exec = %d, %v, %d bytes, want 0, nil and the %d bytes of input", code, err, len(out.String()), len(data))
		}
		// Input that the command does not read.
		code, err = r.Exec(limit(t), "c", m.Spec("true").Process, oci.Streams{Stdin: bytes.NewReader(data)})
		if err != nil || code != 0 {
			t.Errorf("exec with unread input = %d, %v, want 0, nil", code, err)
		}
	})
}

func TestExecTerminal(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := running(t, m)
		p := m.Spec(sh("until stty size | grep 80; do sleep 0.01; done; read x; echo got $x; " +
			"until stty size | grep 100; do sleep 0.01; done; exit 5")...).Process
		p.Terminal = true
		in, client := io.Pipe()
		defer client.Close()
		sizes := make(chan oci.Size, 2)
		sizes <- oci.Size{Width: 80, Height: 24}
		var out ocitest.Output
		type answer struct {
			code int32
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			code, err := r.Exec(limit(t), "c", p, oci.Streams{Stdin: in, Stdout: &out, Resize: sizes})
			done <- answer{code, err}
		}()
		out.WaitFor(t, "24 80")
		sizes <- oci.Size{Width: 100, Height: 50}
		_, _ = io.WriteString(client, "hello\n")
		a := <-done
		if a.err != nil || a.code != 5 {
			t.Errorf("exec = %d, %v, want 5, nil", a.code, a.err)
		}
		if got := out.String(); !strings.Contains(got, "got hello\r\n") || !strings.Contains(got, "50 100") {
			t.Errorf("output = %q, want the input and the new size in it", got)
		}
	})
}

// TestExecTerminalFails: complaints of the runtime come back from a terminal too.
func TestExecTerminalFails(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, p := running(t, m), m.Spec("nosuch").Process
		p.Terminal = true
		_, err := r.Exec(limit(t), "c", p, oci.Streams{})
		if !errors.Is(err, oci.ErrCommand) {
			t.Errorf("exec = %v, want %v", err, oci.ErrCommand)
		}
	})
}

func TestExecClientVanishes(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := runc.New(m.Config)
		s := m.Spec("sleep", "1000")
		start(t, r, oci.CreateRequest{ID: "c", Spec: s})
		for _, terminal := range []bool{false, true} {
			p := m.Spec(sh("sleep 1001 & echo up; sleep 1002")...).Process
			p.Terminal = terminal
			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(limit(t))
			var out ocitest.Output
			done := make(chan error, 1)
			go func() {
				_, err := r.Exec(ctx, "c", p, oci.Streams{Stdout: &out})
				done <- err
			}()
			out.WaitFor(t, "up")
			cancel(gone)
			if err := <-done; !errors.Is(err, gone) {
				t.Errorf("exec of a client that disconnected = %v, want %v", err, gone)
			}
			// One whose connection breaks, as seen by writing.
			_, err := r.Exec(limit(t), "c", p, oci.Streams{Stdout: broken{}})
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("exec with a broken connection = %v, want %v", err, io.ErrClosedPipe)
			}
			// The command's children have got SIGHUP and exit.
			if process.Poll(limit(t), func() bool { return len(members(t, s)) == 1 }) != nil {
				t.Errorf("processes = %v, want only the container's first", members(t, s))
			}
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAttach(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, path := runc.New(m.Config), filepath.Join(m.LogDir, "0.log")
		start(t, r, oci.CreateRequest{
			ID: "c", Spec: m.Spec(sh("while read x; do echo out $x; echo err $x >&2; done; exit 8")...),
			Log: ocitest.LogAt(path), Stdin: true, StdinOnce: true,
		})
		var outs, errs [2]ocitest.Output
		in, client := io.Pipe()
		defer client.Close()
		done := make(chan error, 2)
		for i, stdin := range []io.Reader{in, nil} {
			go func() {
				done <- r.Attach(limit(t), "c", oci.Streams{Stdin: stdin, Stdout: &outs[i], Stderr: &errs[i]})
			}()
		}
		for i := range outs { // until both are there, each gets something
			for !strings.Contains(outs[i].String(), "out hello") {
				_, _ = io.WriteString(client, "hello\n")
				time.Sleep(5 * time.Millisecond)
			}
			errs[i].WaitFor(t, "err hello")
		}
		client.Close() // stdin_once: the container reads the end
		for range outs {
			if err := <-done; err != nil {
				t.Errorf("attach: %v", err)
			}
		}
		exit, err := r.Wait(limit(t), "c")
		if err != nil || exit.Code != 8 {
			t.Errorf("exit = %+v, %v, want code 8", exit, err)
		}
		if got := strings.Join(lines(t, path), "\n"); !strings.Contains(got, "out hello") {
			t.Errorf("log = %q, want %q in it", got, "out hello")
		}
		if err := r.Attach(limit(t), "c", oci.Streams{}); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("attach to an exited container = %v, want a failed precondition", err)
		}
	})
}

func TestAttachTerminal(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, s := runc.New(m.Config), m.Spec(sh("while read x; do stty size; done")...)
		s.Process.Terminal = true
		start(t, r, oci.CreateRequest{ID: "c", Spec: s, Terminal: true, Stdin: true})
		in, client := io.Pipe()
		defer client.Close()
		sizes := make(chan oci.Size, 1)
		sizes <- oci.Size{Width: 120, Height: 40}
		var out ocitest.Output
		done := make(chan error, 1)
		go func() { done <- r.Attach(limit(t), "c", oci.Streams{Stdin: in, Stdout: &out, Resize: sizes}) }()
		for end := time.Now().Add(20 * time.Second); !strings.Contains(out.String(), "40 120") && time.Now().Before(end); {
			_, _ = io.WriteString(client, "\n")
			time.Sleep(5 * time.Millisecond)
		}
		out.WaitFor(t, "40 120")
		must(t, "kill", r.Signal(limit(t), "c", syscall.SIGKILL))
		if err := <-done; err != nil {
			t.Errorf("attach: %v", err)
		}
	})
}

// TestSlowAttach: a client that does not read is disconnected, and the container goes on.
func TestSlowAttach(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := runc.New(m.Config)
		start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec(sh("sleep 0.3; seq 1 2000000; exit 4")...)})
		stuck := make(chan struct{})
		t.Cleanup(func() { close(stuck) })
		err := r.Attach(limit(t), "c", oci.Streams{Stdout: stuckWriter(stuck)})
		if err == nil || !strings.Contains(err.Error(), "keep up") {
			t.Errorf("attach of a slow client = %v, want an error with %q", err, "keep up")
		}
		exit, err := r.Wait(limit(t), "c")
		if err != nil || exit.Code != 4 {
			t.Errorf("exit = %+v, %v, want code 4", exit, err)
		}
	})
}

type stuckWriter chan struct{}

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w
	return len(p), nil
}

func TestAttachContext(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r := running(t, m)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(limit(t))
		time.AfterFunc(50*time.Millisecond, func() { cancel(gone) })
		if err := r.Attach(ctx, "c", oci.Streams{Stdout: io.Discard}); !errors.Is(err, gone) {
			t.Errorf("attach = %v, want %v", err, gone)
		}
		if s, err := r.State(limit(t), "c"); err != nil || s.Status != oci.Running {
			t.Errorf("state = %+v, %v, want %s", s, err, oci.Running)
		}
		killMonitor(t, m, "c")
		if err := r.Attach(limit(t), "c", oci.Streams{}); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("attach without a monitor = %v, want a failed precondition", err)
		}
	})
}

// TestStderrWhileCommandRuns: stderr reaches the client when it is written, not at the end.
func TestStderrWhileCommandRuns(t *testing.T) {
	for name, newHarness := range map[string]ocitest.NewHarness{
		"runc": harness("runc"), "crun": harness("crun"), "runsc": sandboxed,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			r := h.New()
			start(t, r, oci.CreateRequest{ID: "c", Spec: h.Spec("sleep", "1000")})
			in, client := io.Pipe()
			defer in.Close()
			var out ocitest.Output
			go func() {
				out.WaitFor(t, "prompt")
				client.Write([]byte("x\n"))
				client.Close()
			}()
			p := h.Spec("sh", "-c", "echo prompt >&2; read x; echo $x >&2; exit 3").Process
			code, err := r.Exec(limit(t), "c", p, oci.Streams{Stdin: in, Stderr: &out})
			if err != nil || code != 3 || out.String() != "prompt\nx\n" {
				t.Errorf("Exec = %d, %v, stderr %q, want 3, prompt and x", code, err, out.String())
			}
		})
	}
}
