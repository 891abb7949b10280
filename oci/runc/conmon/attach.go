package conmon

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/driver/socket"
)

// The first byte of each packet that the monitor sends on the attach socket. A terminal has stdout only.
const (
	streamStdout = 2
	streamStderr = 3
)

// packetLimit is larger than any packet of conmon, which reads 8 KiB of output at a time.
const packetLimit = 64 << 10

// stdinLimit is the number of bytes that conmon reads of one packet; the rest of a longer one would be lost.
const stdinLimit = 8 << 10

// Conn is a client of a container's attach socket. conmon writes to all clients in turn and waits for each: one that
// does not read blocks the container.
type Conn struct {
	unix *net.UnixConn
	buf  [packetLimit]byte
}

// Attach connects to the monitor of the bundle. errdefs.ErrFailedPrecondition if none listens.
func Attach(bundle string) (*Conn, error) {
	c, err := socket.Dial("unixpacket", bundle, "attach")
	if err != nil {
		return nil, fmt.Errorf("attach: %w", errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	return &Conn{unix: c}, nil
}

// Close ends the session. A Receive under way returns.
func (c *Conn) Close() error { return c.unix.Close() }

// CloseStdin reports the end of the input. conmon then closes the container's stdin, unless it was started to keep it
// open.
func (c *Conn) CloseStdin() error { return c.unix.CloseWrite() }

// Receive returns the next piece of output, which is valid until the next call, and whether it is of stderr. The error
// is io.EOF once the monitor has exited.
func (c *Conn) Receive() (data []byte, stderr bool, err error) {
	for reset := false; ; {
		n, err := c.unix.Read(c.buf[:])
		if errors.Is(err, syscall.ECONNRESET) && !reset {
			// The monitor exited without having accepted the connection or read all input. The kernel returns this
			// error once, before the remaining output.
			reset = true
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if s := c.buf[0]; n > 1 && (s == streamStdout || s == streamStderr) {
			return c.buf[1:n], s == streamStderr, nil
		}
	}
}

// Write sends input for the container's stdin.
func (c *Conn) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := c.unix.Write(p[sent:min(len(p), sent+stdinLimit)])
		sent += n
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}
