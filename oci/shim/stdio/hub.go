package stdio

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/podd-project/podd/oci/driver/socket"
)

const (
	// clientLimit is the number of clients of one container, backlog the output that each may be behind, in packets.
	clientLimit = 64
	backlog     = 256
	// packet is the longest output in one packet, inputLimit the longest input, in bytes.
	packet     = 8 << 10
	inputLimit = 64 << 10
	// patience is how long a container with a terminal waits for a client that takes nothing: somebody's shell. podd
	// gives up earlier.
	patience = 15 * time.Second
	// drainTime is how long clients may take for the last output.
	drainTime = 5 * time.Second
)

// hub broadcasts output to the attached clients. One that falls behind is dropped, with a terminal after patience. None
// delays other containers.
type hub struct {
	listener *net.UnixListener
	input    *input
	terminal bool

	mu      sync.Mutex
	clients map[*client]bool
	closed  bool
	writers sync.WaitGroup
}

// listen makes a SEQPACKET socket in the bundle, in place of one that a dead process left.
func listen(bundle, name string) (*net.UnixListener, error) {
	if err := os.Remove(filepath.Join(bundle, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	l, err := socket.Listen("unixpacket", bundle, name)
	if err != nil {
		return nil, fmt.Errorf("stdio: %w", err)
	}
	return l, nil
}

func openHub(bundle string, in *input, terminal bool) (*hub, error) {
	l, err := listen(bundle, Socket)
	if err != nil {
		return nil, err
	}
	return &hub{listener: l, input: in, terminal: terminal, clients: map[*client]bool{}}, nil
}

// serve accepts clients until the hub is closed.
func (r *hub) serve() {
	for {
		conn, err := r.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: the output matters more
			continue
		}
		c := &client{conn: conn, queue: make(chan []byte, backlog)}
		if !r.addClient(c) {
			conn.Close()
			continue
		}
		go func() {
			c.writeQueue()
			r.removeClient(c)
			r.writers.Done()
		}()
		go r.input.copyFrom(conn)
	}
}

func (r *hub) addClient(c *client) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.clients) >= clientLimit {
		return false
	}
	r.clients[c] = true
	r.writers.Add(1)
	return true
}

func (r *hub) removeClient(c *client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.clients, c)
}

// broadcast passes output to every client.
func (r *hub) broadcast(stream byte, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(data) > 0 && len(r.clients) > 0 {
		piece := data[:min(len(data), packet)]
		data = data[len(piece):]
		message := append([]byte{stream}, piece...)
		for c := range r.clients {
			if !r.pass(c, message) {
				delete(r.clients, c)
				_ = c.conn.Close()
				close(c.queue)
			}
		}
	}
}

// pass queues a message for a client. It reports false if the client is too far behind.
func (r *hub) pass(c *client, message []byte) bool {
	select {
	case c.queue <- message:
		return true
	default:
	}
	if !r.terminal {
		return false
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case c.queue <- message:
		return true
	case <-timer.C:
		return false
	}
}

// drainClients ends the clients after they have all output.
func (r *hub) drainClients() {
	r.mu.Lock()
	r.closed = true
	for c := range r.clients {
		_ = c.conn.SetWriteDeadline(time.Now().Add(drainTime))
		close(c.queue)
	}
	clear(r.clients)
	r.mu.Unlock()
	r.writers.Wait()
}

func (r *hub) close() error { return r.listener.Close() }

// client is one attached client.
type client struct {
	conn  *net.UnixConn
	queue chan []byte
}

// writeQueue writes the queue to the client, until the queue ends. It is emptied even if the client is gone.
func (c *client) writeQueue() {
	defer c.conn.Close()
	for message := range c.queue {
		if _, err := c.conn.Write(message); err != nil {
			_ = c.conn.Close()
		}
	}
}

// input is the container's stdin.
type input struct {
	// f is nil if it has none.
	f *os.File
	// once: when the first client's input ends, the container's does.
	once bool

	mu     sync.Mutex
	closed bool
}

// copyFrom passes a client's input on, until its end.
func (i *input) copyFrom(conn *net.UnixConn) {
	buf := make([]byte, inputLimit)
	for {
		n, err := conn.Read(buf)
		if n > 0 && i.f != nil {
			if _, err := i.f.Write(buf[:n]); err != nil {
				n = 0
			}
		}
		if err != nil || n == 0 {
			break
		}
	}
	if i.f == nil || !i.once {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.closed {
		i.closed = true
		_ = i.f.Close()
	}
}

// control serves requests to reopen the log.
type control struct {
	listener *net.UnixListener
	log      *log
}

// requestReopen is the request for a new log file. The answer is readyAnswer or an error.
const requestReopen = "reopen"

func openControl(bundle string, l *log) (*control, error) {
	listener, err := listen(bundle, Control)
	if err != nil {
		return nil, err
	}
	return &control{listener: listener, log: l}, nil
}

func (c *control) serve() {
	for {
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go c.serveConn(conn)
	}
}

func (c *control) serveConn(conn *net.UnixConn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(drainTime))
	buf := make([]byte, 64)
	n, err := conn.Read(buf)
	if err != nil || string(buf[:n]) != requestReopen {
		return
	}
	word := readyAnswer
	if err := c.log.reopen(); err != nil {
		word = err.Error()
	}
	_, _ = conn.Write([]byte(word))
}

func (c *control) close() error { return c.listener.Close() }
