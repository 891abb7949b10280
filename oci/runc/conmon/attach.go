package conmon

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/containerd/errdefs"
)

// Stream is the first byte of each packet that the monitor sends on the attach socket.
type Stream byte

// The streams of a container's output. A terminal has Stdout only.
const (
	Stdout Stream = 2
	Stderr Stream = 3
)

// packetLimit is larger than any packet of conmon, which reads 8 KiB of output at a time.
const packetLimit = 64 << 10

// stdinLimit is what conmon takes in one packet; the rest of a longer one would be lost.
const stdinLimit = 8 << 10

// Conn is one client of a container's attach socket. conmon writes to all clients in turn and waits for
// each: one that does not read blocks the container.
type Conn struct{ unix *net.UnixConn }

// Attach connects to the monitor of the bundle. errdefs.ErrFailedPrecondition when none listens.
func Attach(bundle string) (*Conn, error) {
	// By descriptor, because a socket's address has room for 108 bytes only.
	dir, err := os.Open(bundle)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", errors.Join(err, errdefs.ErrFailedPrecondition))
	}
	defer dir.Close()
	path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/attach"
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
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

// Read returns the next piece of output, which is valid until the next call. The error is io.EOF once the
// monitor has ended.
func (c *Conn) Read(buf *Buffer) (Stream, []byte, error) {
	for reset := false; ; {
		n, err := c.unix.Read(buf[:])
		if errors.Is(err, syscall.ECONNRESET) && !reset {
			// The monitor has ended without having accepted us, or read all our input. The kernel says so once, and before
			// it gives what is left of the output.
			reset = true
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if s := Stream(buf[0]); n > 1 && (s == Stdout || s == Stderr) {
			return s, buf[1:n], nil
		}
	}
}

// Buffer is what Read reads into.
type Buffer = [packetLimit]byte

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
