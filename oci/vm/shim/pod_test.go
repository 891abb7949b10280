package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/wire"
)

// TestOpenHasDeadline: a guest that reads nothing holds no caller longer than its deadline, and the host keeps one
// stream that is being opened.
func TestOpenHasDeadline(t *testing.T) {
	line, far := net.Pipe()
	defer far.Close()
	session, err := wire.Host(line, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	p := newPod("p", Options{})
	p.session = session
	for range 5 * heldStreams {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := p.open(ctx, wire.Header{Kind: wire.Halt}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("open = %v, want that the deadline is exceeded", err)
		}
	}
	if n := session.NumStreams(); n > 1 {
		t.Errorf("the host holds %d streams, want at most 1", n)
	}
}

// silent is a guest that answers no call.
type silent struct{ task.TTRPCTaskService }

func (silent) Create(ctx context.Context, _ *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silent) Delete(ctx context.Context, _ *task.DeleteRequest) (*task.DeleteResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestCallsHaveDeadlines: a guest that does not answer holds no caller that has no deadline, as containerd.
func TestCallsHaveDeadlines(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(*pod) error
		want time.Duration
	}{
		{"Create", func(p *pod) error {
			return p.createInGuest(context.Background(), &task.CreateTaskRequest{ID: "c"})
		}, createTimeout},
		{"Create with a stream that is not taken", func(p *pod) error {
			p.opening <- struct{}{}
			return p.createInGuest(context.Background(), &task.CreateTaskRequest{ID: "c", Stdout: "/none"})
		}, 2 * callTimeout}, // the second is for giving it up
		{"Delete", func(p *pod) error {
			_, err := p.deleteTask(context.Background(), &task.DeleteRequest{ID: "c"})
			return err
		}, callTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPod("p", Options{})
			p.tasks = silent{}
			began := time.Now()
			if err := c.call(p); err == nil {
				t.Errorf("%s = nil, want an error", c.name)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("%s took %s, want %s", c.name, took, c.want)
			}
		})
	}
}

// TestKillsArePublishedInTurn: of the out-of-memory kills that a guest reports, one a second of each container counts.
func TestKillsArePublishedInTurn(t *testing.T) {
	p := newPod("p", Options{})
	for _, id := range []string{"a", "b"} {
		if err := p.add(id); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	for _, c := range []struct {
		id    string
		after time.Duration
		want  bool
	}{
		{"a", 0, true}, {"a", 0, false}, {"b", 0, true}, {"a", oomPause - 1, false}, {"a", oomPause, true},
		{"a", oomPause + 1, false}, {"unknown", oomPause, false},
	} {
		if got := p.noteKill(c.id, begin.Add(c.after)); got != c.want {
			t.Errorf("kill in %s after %s is published = %v, want %v", c.id, c.after, got, c.want)
		}
	}
}

// TestPipesOfDeletedProcessesEnd: a guest that keeps the output of a deleted process open does not have the host keep
// the stream with what arrived, nor does a caller that no longer reads.
func TestPipesOfDeletedProcessesEnd(t *testing.T) {
	t.Parallel()
	host, guest := sessions(t, nil)
	p := newPod("p", Options{})
	p.session = host
	k := processKey{"c", "e"}
	pipe := filepath.Join(t.TempDir(), "stdout")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	caller, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	for range heldStreams {
		path := p.addPipe(k)
		c, err := p.open(t.Context(), wire.Header{Kind: wire.Output, Path: path})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p.notePipe(k, path, cancel)
		go func() {
			defer p.dropPipe(k, path)
			copyStream(ctx, wire.Output, c, pipe)
		}()
		far, err := guest.Accept()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(far, neverEnding{}) }()
	}
	if n := host.NumStreams(); n != heldStreams {
		t.Fatalf("the host has %d streams, want %d", n, heldStreams)
	}
	time.Sleep(time.Second) // the pipe is full, and every write waits
	p.cutPipes(k)
	for end := time.Now().Add(20 * time.Second); host.NumStreams() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the host holds %d streams of a process that is deleted", host.NumStreams())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pipes) > 0 {
		t.Errorf("pipes = %v of a process that is deleted, want none", p.pipes)
	}
}

// neverEnding is output without end, not too fast for the machine that tests.
type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return min(len(b), 1<<10), nil
}
