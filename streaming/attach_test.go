package streaming

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hub is a container with several attached clients: input of one is output of all.
type hub struct {
	mu      sync.Mutex
	clients map[io.Writer]bool
	joined  chan struct{}
	ended   chan struct{}
}

func (h *hub) attach(ctx context.Context, _ string, s Streams) error {
	h.mu.Lock()
	h.clients[s.Stdout] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.clients, s.Stdout)
		h.mu.Unlock()
	}()
	go func() { // may stay blocked in Read when the session ends, as Streams allows
		buf := make([]byte, 1024)
		for {
			n, err := s.Stdin.Read(buf)
			if err != nil {
				return
			}
			h.mu.Lock()
			for w := range h.clients {
				w.Write(buf[:n])
			}
			h.mu.Unlock()
		}
	}()
	h.joined <- struct{}{}
	select {
	case <-h.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestAttachSeveralClients attaches a client of each transport to one container; one disconnects, the others go on.
func TestAttachSeveralClients(t *testing.T) {
	h := &hub{clients: map[io.Writer]bool{}, joined: make(chan struct{}), ended: make(chan struct{})}
	r := start(t, backend{attach: h.attach})
	type client struct {
		out   safeBuffer
		stdin *io.PipeWriter
		leave context.CancelFunc
		done  chan error
	}
	var clients []*client
	for _, tr := range transports() {
		executor, err := tr.executor(r.url(r.Attach("", &cri.AttachRequest{ContainerId: "c1", Stdin: true, Stdout: true})))
		if err != nil {
			t.Fatal(err)
		}
		c := &client{done: make(chan error, 1)}
		ctx, leave := context.WithCancel(t.Context())
		stdin, w := io.Pipe()
		c.stdin, c.leave = w, leave
		defer leave()
		defer w.Close()
		go func() {
			c.done <- executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: &c.out})
		}()
		recv(t, "a client to be attached", h.joined)
		clients = append(clients, c)
	}
	for i, c := range clients {
		fmt.Fprintf(c.stdin, "<from %d>", i)
		for j, other := range clients {
			eventually(t, fmt.Sprintf("client %d receives the input of client %d", j, i), func() bool {
				return len(other.out.String()) == (i+1)*len("<from 0>")
			})
		}
	}
	clients[1].leave()
	eventually(t, "one client is detached", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.clients) == 2
	})
	fmt.Fprint(clients[0].stdin, "<bye>")
	eventually(t, "the others still receive input", func() bool {
		return clients[2].out.String() == "<from 0><from 1><from 2><bye>"
	})
	close(h.ended)
	for _, i := range []int{0, 2} {
		if err := recv(t, "an attached client to end", clients[i].done); err != nil {
			t.Errorf("client %d: %v, want no error", i, err)
		}
	}
	for _, c := range clients {
		c.stdin.Close()
	}
	<-clients[1].done
}
