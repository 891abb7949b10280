package streaming

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
)

// States of the kernel's tcp_states.h in which the client may still read.
const (
	tcpEstablished = 1
	tcpFinWait1    = 4 // we have said all, the client has not received all
	tcpFinWait2    = 5 // the client has received all
)

// conn is the client's connection once it speaks another protocol than HTTP.
type conn struct {
	net.Conn
	// lost is told of every error.
	lost func(error)
	half sync.Once

	// readMu makes the protocol's reader and drain take turns; buf holds what the HTTP server had read ahead.
	readMu sync.Mutex
	buf    *bufio.Reader
}

func (c *conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	n, err := c.buf.Read(p)
	if err != nil {
		c.lost(err)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.lost(err)
	}
	return n, err
}

// Close ends the outgoing direction only, which is as far as the protocols on top may go; cut does the rest.
func (c *conn) Close() error {
	c.half.Do(func() {
		// An error is a connection that is closed already.
		if t, ok := c.Conn.(*tls.Conn); ok {
			_ = t.CloseWrite()
		}
		if tcp := c.tcp(); tcp != nil {
			_ = tcp.CloseWrite()
		}
	})
	return nil
}

// drain reads until the client has closed its side or the connection is cut.
func (c *conn) drain() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) }

// cut closes the connection; every Read and Write under way returns.
func (c *conn) cut() { _ = c.Conn.Close() }

// gone asks the kernel whether the client has closed its side or vanished, without reading.
func (c *conn) gone() bool {
	state := c.state()
	return state != tcpEstablished && state != tcpFinWait1 && state != tcpFinWait2
}

// received tells whether the client's machine has everything, the end included.
func (c *conn) received() bool { return c.state() == tcpFinWait2 }

// state is the state of the TCP connection, 0 when it is closed.
func (c *conn) state() (state uint8) {
	tcp := c.tcp()
	if tcp == nil {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	// An error leaves state at 0: the connection is closed.
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
			state = info.State
		}
	})
	return state
}

// tcp is the connection below TLS, if there is any.
func (c *conn) tcp() *net.TCPConn {
	inner := c.Conn
	if t, ok := inner.(*tls.Conn); ok {
		inner = t.NetConn()
	}
	tcp, _ := inner.(*net.TCPConn)
	return tcp
}

// upgrade is the ResponseWriter the protocol libraries get: hijacking it hands the connection to the session too.
type upgrade struct {
	http.ResponseWriter
	sess *session
}

// Hijack implements http.Hijacker.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, buffered, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, fmt.Errorf("take over connection: %w", err)
	}
	c := &conn{Conn: raw, buf: buffered.Reader}
	c.lost = func(error) { u.sess.lost(errGone) }
	u.sess.adopt(c)
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}
