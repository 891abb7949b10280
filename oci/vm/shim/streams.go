package shim

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/containerd/fifo"

	"github.com/podd-project/podd/oci/vm/guest/env"
	"github.com/podd-project/podd/oci/vm/wire"
)

// noDeadline lifts a deadline.
var noDeadline time.Time

// hostStreams are the named pipes of a process on the host; empty if it has none.
type hostStreams struct{ stdin, stdout, stderr string }

// processKey identifies a process of a container: its first one, or the command execID.
type processKey struct{ id, execID string }

// connectStreams connects the pipes of a process with ones in the guest, whose paths it returns.
func (p *pod) connectStreams(ctx context.Context, k processKey, h hostStreams) (guest hostStreams, err error) {
	for _, s := range []struct {
		kind  wire.Kind
		host  string
		guest *string
	}{
		{wire.Input, h.stdin, &guest.stdin}, {wire.Output, h.stdout, &guest.stdout}, {wire.Output, h.stderr, &guest.stderr},
	} {
		if s.host == "" {
			continue
		}
		if *s.guest, err = p.connectStream(ctx, k, s.kind, s.host); err != nil {
			return hostStreams{}, fmt.Errorf("stream %s: %w", s.host, err)
		}
	}
	return guest, nil
}

// connectStream makes a named pipe in the guest and copies between it and the host's.
func (p *pod) connectStream(ctx context.Context, k processKey, kind wire.Kind, host string) (string, error) {
	path := p.addPipe(k)
	c, err := p.open(ctx, wire.Header{Kind: kind, Path: path})
	if err != nil {
		return "", err
	}
	if err := readResult(ctx, c); err != nil {
		_ = c.Close()
		return "", err
	}
	ctx, cancel := p.untilEnd()
	p.notePipe(k, path, cancel)
	go func() {
		defer p.dropPipe(k, path)
		defer cancel()
		copyStream(ctx, kind, c, host)
	}()
	return path, nil
}

// copyStream copies between the guest's stream and the host's pipe until that ends or ctx does, and closes the stream.
func copyStream(ctx context.Context, kind wire.Kind, c net.Conn, host string) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if kind == wire.Input {
		copyInput(ctx, c, host)
	} else {
		copyOutput(ctx, c, host)
	}
}

// copyInput copies the host's pipe to the guest.
func copyInput(ctx context.Context, c io.Writer, path string) {
	f, err := fifo.OpenFifo(ctx, path, syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer closeAtEnd(ctx, f)()
	defer f.Close()
	_, _ = io.Copy(c, f)
}

// closeAtEnd closes c when ctx ends, which ends reads and writes that wait. The caller calls the result.
func closeAtEnd(ctx context.Context, c io.Closer) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = c.Close() })
}

// copyOutput copies the guest's output to the host's pipe. While it does, the pipe has a reader, so that the
// container is not killed by SIGPIPE while the caller's reader is restarted. So a write waits until ctx ends if the
// caller reads no more.
func copyOutput(ctx context.Context, c io.Reader, path string) {
	w, err := fifo.OpenFifo(ctx, path, syscall.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer closeAtEnd(ctx, w)()
	defer w.Close()
	r, err := fifo.OpenFifo(ctx, path, syscall.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer r.Close()
	_, _ = io.Copy(w, c)
}

// addPipe returns a new path in the guest.
func (p *pod) addPipe(k processKey) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipeCount++
	path := fmt.Sprintf("%s/%d", env.PipeDir, p.pipeCount)
	if p.pipes[k] == nil {
		p.pipes[k] = map[string]context.CancelFunc{}
	}
	p.pipes[k][path] = nil
	return path
}

// notePipe keeps what ends the copy of a pipe.
func (p *pod) notePipe(k processKey, path string, end context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipes[k][path] = end
}

// dropPipe forgets a pipe whose copy has ended.
func (p *pod) dropPipe(k processKey, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pipes[k], path)
	if len(p.pipes[k]) == 0 {
		delete(p.pipes, k)
	}
}

// releasePipes has the guest give up the pipes of a process that were never opened: it could not be started. Those of
// a process that has run end by themselves.
func (p *pod) releasePipes(ctx context.Context, k processKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	p.mu.Lock()
	left := slices.Collect(maps.Keys(p.pipes[k]))
	p.mu.Unlock()
	for _, path := range left {
		c, err := p.open(ctx, wire.Header{Kind: wire.Release, Path: path})
		if err != nil {
			return // the machine has ended, or does not answer
		}
		_ = readResult(ctx, c) // a pipe that remains costs the guest a few bytes
		_ = c.Close()
		p.dropPipe(k, path)
	}
}

// outputGrace is how long the last output of a process may take to arrive after the process is deleted.
const outputGrace = 10 * time.Second

// endPipes ends, after outputGrace, the rest of the pipes of a deleted process. The guest has closed them before it
// answered, if it is honest; another one could have the host keep its streams, each with a window of output.
func (p *pod) endPipes(k processKey) { time.AfterFunc(outputGrace, func() { p.cutPipes(k) }) }

// cutPipes ends the copies of a process' pipes.
func (p *pod) cutPipes(k processKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, end := range p.pipes[k] {
		if end != nil {
			end()
		}
	}
}

// untilEnd is a context that ends with the machine.
func (p *pod) untilEnd() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-p.machine.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
