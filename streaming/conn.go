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
	tcpFinWait1    = 4 // sent everything, the client has not acknowledged everything
	tcpFinWait2    = 5 // the client has acknowledged everything
)

// conn is the client's connection after the upgrade from HTTP.
type conn struct {
	net.Conn
	// onError is called with every error of Read and Write.
	onError func(error)
	half    sync.Once

	// readMu serializes the protocol's reader and drain. buf holds the bytes that the HTTP server read ahead.
	readMu sync.Mutex
	buf    *bufio.Reader
}

func (c *conn) Read(p []byte) (int, error) {
	c.readMu.Lock()
	defer c.readMu.Unlock()
	n, err := c.buf.Read(p)
	if err != nil {
		c.onError(err)
	}
	return n, err
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.onError(err)
	}
	return n, err
}

// Close ends the outgoing direction only: the protocol libraries must not close the connection. abort does.
func (c *conn) Close() error {
	c.half.Do(func() {
		// An error means that the connection is closed already.
		if t, ok := c.Conn.(*tls.Conn); ok {
			_ = t.CloseWrite()
		}
		if tcp := c.tcp(); tcp != nil {
			_ = tcp.CloseWrite()
		}
	})
	return nil
}

// drain reads and discards until the client has closed its side or the connection is aborted.
func (c *conn) drain() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{c}) }

// abort closes the connection and makes all blocked Reads and Writes return.
func (c *conn) abort() { _ = c.Conn.Close() }

// clientGone reports, without reading, whether the client has closed its side or the connection is dead.
func (c *conn) clientGone() bool {
	state := c.state()
	return state != tcpEstablished && state != tcpFinWait1 && state != tcpFinWait2
}

// receivedAll reports whether the client's machine has acknowledged everything, including the FIN.
func (c *conn) receivedAll() bool { return c.state() == tcpFinWait2 }

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

// tcp returns the TCP connection, below TLS if there is any.
func (c *conn) tcp() *net.TCPConn {
	inner := c.Conn
	if t, ok := inner.(*tls.Conn); ok {
		inner = t.NetConn()
	}
	tcp, _ := inner.(*net.TCPConn)
	return tcp
}

// upgrade is the ResponseWriter for the protocol libraries: Hijack also gives the connection to the session.
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
	c.onError = func(error) { u.sess.connLost(errGone) }
	u.sess.adopt(c)
	return c, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)), nil
}
