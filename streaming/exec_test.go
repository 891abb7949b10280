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
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL("a", "b c"), strings.NewReader("hello"), false, nil)
		if got.err != nil || got.stdout != "out:c1:hello:[a b c]" || got.stderr != "err:false:true" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestExecOnlyWhatWasAskedFor: streams not asked for are nil for the backend.
func TestExecOnlyWhatWasAskedFor(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		if s.Stdin != nil || s.Stderr != nil || s.Stdout == nil {
			return 1, nil
		}
		return 0, nil
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		u := r.url(r.Exec(&cri.ExecRequest{ContainerId: "c1", Stdout: true}))
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
				t.Errorf("exit code %d reached the client as %v", want, err)
			}
		}
		code, fail = 0, errors.New("no such container")
		if err := tr.stream(t, r.execURL(), nil, false, nil).err; err == nil || !strings.Contains(err.Error(), "no such container") {
			t.Errorf("the backend's error reached the client as %v", err)
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
			t.Errorf("client was told %v", err)
		}
		if err := tr.stream(t, r.execURL(), nil, false, nil).err; err != nil {
			t.Errorf("next session: %v", err)
		}
	})
}

// TestExecHalfClose: the client's input ends, its output goes on.
func TestExecHalfClose(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		all, err := io.ReadAll(s.Stdin)
		fmt.Fprintf(s.Stdout, "%s and that is all", all)
		return 0, err
	}}
	for _, tr := range transports() {
		if tr.name == "websocket-v4" {
			continue // the protocol cannot say it: TestWebSocketProtocols
		}
		t.Run(tr.name, func(t *testing.T) {
			got := tr.stream(t, start(t, b).execURL(), strings.NewReader("input"), false, nil)
			if got.err != nil || got.stdout != "input and that is all" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestExecBulk moves megabytes both ways and compares them.
func TestExecBulk(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16)
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		got := make([]byte, len(data))
		if _, err := io.ReadFull(s.Stdin, got); err != nil {
			return 0, err
		}
		_, err := s.Stdout.Write(got) // one call, of more than a frame may have
		return 0, err
	}}
	eachTransport(t, b, func(t *testing.T, r running, tr transport) {
		got := tr.stream(t, r.execURL(), bytes.NewReader(data), false, nil)
		if got.err != nil || sha256.Sum256([]byte(got.stdout)) != sha256.Sum256(data) {
			t.Errorf("%d bytes came back, error %v", len(got.stdout), got.err)
		}
	})
}

// TestExecUnreadInput: the outcome arrives although the client still sends what nobody reads.
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
			t.Errorf("got %+v", got)
		}
	})
}

// endless is /dev/zero until the test ends.
type endless struct{ ctx context.Context }

func (e endless) Read(p []byte) (int, error) {
	if e.ctx.Err() != nil {
		return 0, io.EOF
	}
	return len(p), nil
}

// sizeQueue gives sizes until it is closed.
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
		u := r.url(r.Exec(&cri.ExecRequest{ContainerId: "c1", Tty: true, Stdin: true, Stdout: true}))
		sizes := make(sizeQueue, 3)
		sizes <- remotecommand.TerminalSize{Width: 80, Height: 24}
		sizes <- remotecommand.TerminalSize{}
		sizes <- remotecommand.TerminalSize{Width: 132, Height: 43}
		defer close(sizes)
		got := tr.stream(t, u, strings.NewReader(""), true, sizes)
		if got.err != nil || !strings.HasSuffix(got.stdout, "132x43 ") || strings.Contains(got.stdout, "0x0") {
			t.Errorf("got %+v", got)
		}
	})
}

// TestExecClosedWriters: a backend that closes its streams, twice, and writes on, gets errors and breaks nothing.
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
			t.Errorf("got %+v", got)
		}
		if err := <-late; !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("writing to a closed stream gave %v", err)
		}
	})
}
