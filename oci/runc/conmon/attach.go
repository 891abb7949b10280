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

// stdinLimit is what conmon takes in one packet; the rest of a longer one would be lost.
const stdinLimit = 8 << 10

// Conn is one client of a container's attach socket. conmon writes to all clients in turn and waits for
// each: one that does not read blocks the container.
type Conn struct {
	unix *net.UnixConn
	buf  [packetLimit]byte
}

// Attach connects to the monitor of the bundle. errdefs.ErrFailedPrecondition when none listens.
func Attach(bundle string) (*Conn, error) {
	c, err := socket.Dial("unixpacket", bundle, "attach")
	if err != nil {
		return nil, fmt.Errorf("attach: %w", errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	return &Conn{unix: c}, nil
}

// Close ends the session; a Read under way returns.
func (c *Conn) Close() error { return c.unix.Close() }

// CloseStdin says that no more input follows. conmon then closes the container's stdin, unless it was told to
// leave it open.
func (c *Conn) CloseStdin() error { return c.unix.CloseWrite() }

// Receive returns the next piece of output, which is valid until the next call, and whether it is of stderr. The error is
// io.EOF once the monitor has ended.
func (c *Conn) Receive() (data []byte, stderr bool, err error) {
	for reset := false; ; {
		n, err := c.unix.Read(c.buf[:])
		if errors.Is(err, syscall.ECONNRESET) && !reset {
			// The monitor has ended without having accepted us, or read all our input. The kernel says so once, and before
			// it gives what is left of the output.
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
