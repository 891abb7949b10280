package streaming

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExecKeepsStreamsApart(t *testing.T) {
	b := backend{exec: func(_ context.Context, id string, cmd []string, s Streams) (int, error) {
		line := make([]byte, 5)
		if _, err := io.ReadFull(s.Stdin, line); err != nil {
			return 0, err
		}
		fmt.Fprintf(s.Stdout, "out:%s:%s:%v", id, line, cmd)
		fmt.Fprintf(s.Stderr, "err:%v:%v", s.TTY, s.Resize == nil)
		return 0, nil
	}}
	want := result{stdout: "out:c1:hello:[a b c]", stderr: "err:false:true"}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL("a", "b c"), strings.NewReader("hello"), false, nil)
		if got != want {
			t.Errorf("client got %+v, want %+v", got, want)
		}
	})
}

// TestExecRequestedStreams: streams that were not requested are nil.
func TestExecRequestedStreams(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		if s.Stdin != nil || s.Stderr != nil || s.Stdout == nil {
			return 1, nil
		}
		return 0, nil
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		u := r.url(r.Exec("", &cri.ExecRequest{ContainerId: "c1", Stdout: true}))
		executor, err := tr.executor(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}); err != nil {
			t.Error(err)
		}
	})
}

func TestExecExitCodes(t *testing.T) {
	var code int
	var fail error
	b := backend{exec: func(context.Context, string, []string, Streams) (int, error) { return code, fail }}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		for _, want := range []int{0, 1, 7, 127, 137, 255} {
			code, fail = want, nil
			err := tr.stream(t, r.execURL(), nil, false, nil).err
			var exit exec.CodeExitError
			if want == 0 && err != nil || want != 0 && (!errors.As(err, &exit) || exit.Code != want) {
				t.Errorf("client got %v, want exit code %d", err, want)
			}
		}
		code, fail = 0, errors.New("no such container")
		err := tr.stream(t, r.execURL(), nil, false, nil).err
		if err == nil || !strings.Contains(err.Error(), fail.Error()) {
			t.Errorf("client got %v, want %q", err, fail)
		}
	})
}

func TestExecPanicEndsOneSession(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, cmd []string, _ Streams) (int, error) {
		if len(cmd) > 0 {
			panic("secret " + cmd[0])
		}
		return 0, nil
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		err := tr.stream(t, r.execURL("argument"), nil, false, nil).err
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("client got %v, want an error without the panic's value", err)
		}
		if err := tr.stream(t, r.execURL(), nil, false, nil).err; err != nil {
			t.Errorf("next session: %v, want no error", err)
		}
	})
}

// TestExecHalfClose: the client closes its input and still receives output.
func TestExecHalfClose(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		all, err := io.ReadAll(s.Stdin)
		fmt.Fprintf(s.Stdout, "%s and that is all", all)
		return 0, err
	}}
	for _, tr := range transports() {
		if tr.name == "websocket-v4" {
			continue // the protocol has no message for it
		}
		t.Run(tr.name, func(t *testing.T) {
			got := tr.stream(t, start(t, b).execURL(), strings.NewReader("input"), false, nil)
			if want := (result{stdout: "input and that is all"}); got != want {
				t.Errorf("client got %+v, want %+v", got, want)
			}
		})
	}
}

// TestExecBulk sends megabytes in both directions and compares them.
func TestExecBulk(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		got := make([]byte, len(data))
		if _, err := io.ReadFull(s.Stdin, got); err != nil {
			return 0, err
		}
		_, err := s.Stdout.Write(got) // one call, more than maxFrame
		return 0, err
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL(), bytes.NewReader(data), false, nil)
		if got.err != nil || sha256.Sum256([]byte(got.stdout)) != sha256.Sum256(data) {
			t.Errorf("got %d bytes, error %v; want the %d bytes sent", len(got.stdout), got.err, len(data))
		}
	})
}

// TestExecUnreadInput: the client receives the outcome while it still sends input that is not read.
func TestExecUnreadInput(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		if _, err := io.ReadFull(s.Stdin, make([]byte, 1)); err != nil {
			return 0, err
		}
		fmt.Fprint(s.Stdout, "first")
		return 7, nil
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL(), endless{t.Context()}, false, nil)
		var exit exec.CodeExitError
		if !errors.As(got.err, &exit) || exit.Code != 7 || got.stdout != "first" {
			t.Errorf("client got %+v, want %q and exit code 7", got, "first")
		}
	})
}

// endless returns zeros until the test ends.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, io.EOF
	}
	return len(p), nil
}

// sizeQueue returns sizes until it is closed.
type sizeQueue chan remotecommand.TerminalSize

func (q sizeQueue) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &size
}

func TestExecTerminal(t *testing.T) {
	b := backend{exec: func(ctx context.Context, _ string, _ []string, s Streams) (int, error) {
		if !s.TTY || s.Stderr != nil {
			return 1, nil
		}
		for size := range s.Resize {
			fmt.Fprintf(s.Stdout, "%dx%d ", size.Width, size.Height)
			if size.Width == 132 {
				return 0, nil
			}
		}
		return 2, context.Cause(ctx)
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		u := r.url(r.Exec("", &cri.ExecRequest{ContainerId: "c1", Tty: true, Stdin: true, Stdout: true}))
		sizes := make(sizeQueue, 3)
		sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
		sizes <- remotecommand.TerminalSize{}
		sizes <- remotecommand.TerminalSize{Width: 132, Height: 43}
		defer close(sizes)
		got := tr.stream(t, u, strings.NewReader(""), true, sizes)
		if got.err != nil || !strings.HasSuffix(got.stdout, "132x43 ") || strings.Contains(got.stdout, "0x0") {
			t.Errorf("client got %+v, want sizes up to 132x43 without 0x0", got)
		}
	})
}

// TestExecClosedWriters: a backend may close its streams twice; writing to a closed one fails.
func TestExecClosedWriters(t *testing.T) {
	late := make(chan error, 2)
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		fmt.Fprint(s.Stdout, "text")
		s.Stdout.Close()
		s.Stdout.Close()
		_, err := s.Stdout.Write([]byte("late"))
		late <- err
		fmt.Fprint(s.Stderr, "more")
		return 3, nil
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL(), nil, false, nil)
		var exit exec.CodeExitError
		if !errors.As(got.err, &exit) || exit.Code != 3 || got.stdout != "text" || got.stderr != "more" {
			t.Errorf("client got %+v, want stdout %q, stderr %q, exit code 3", got, "text", "more")
		}
		if err := <-late; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write to a closed stream: %v, want %v", err, io.ErrClosedPipe)
		}
	})
}

// TestExecLog: the log names the container and the reason, but neither the command nor the token.
func TestExecLog(t *testing.T) {
	fail := errors.New("no such container")
	b := backend{exec: func(context.Context, string, []string, Streams) (int, error) { return 0, fail }}
	var out safeBuffer
	log := discardLog()
	log.SetOutput(&out)
	r := startLogging(t, b, log)
	u := r.execURL("secret")
	transports()[0].stream(t, u, nil, false, nil)
	r.noSession()
	got := out.String()
	for _, want := range []string{"session=exec", "container=c1", fail.Error()} {
		if !strings.Contains(got, want) {
			t.Errorf("log = %q, want %q in it", got, want)
		}
	}
	for _, secret := range []string{"secret", u[strings.LastIndex(u, "/")+1:]} {
		if strings.Contains(got, secret) {
			t.Errorf("log = %q, want no %q in it", got, secret)
		}
	}
}
