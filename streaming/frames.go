package streaming

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
)

// maxDataFrame is the largest data frame that SPDY sees, in bytes. It queues up to 50 frames for each of its five
// workers while nobody reads their streams, so a session keeps up to 2 MiB of unread input.
const maxDataFrame = 8 << 10

const (
	frameHeader    = 8
	controlFrame   = 1 << 7 // in the first byte
	frameSynStream = 1
	flagFin        = 1
)

// frameConn is a connection on which a client sends SPDY frames. It splits large data frames: SPDY allows 16 MiB for
// one, which the library reads as a whole. It ends at a stream id that was used before: the library would start a
// goroutine for each.
type frameConn struct {
	net.Conn
	// head has the bytes that are read next, before those of the connection. pass is how many of those follow.
	head []byte
	pass int
	// stream and flags are the data frame's, rest is its part that was not passed.
	stream uint32
	flags  byte
	rest   int
	// opened is the largest stream id.
	opened uint32
	buf    [frameHeader + 4]byte
}

// Read returns bytes of one frame.
func (c *frameConn) Read(p []byte) (int, error) {
	for len(c.head) == 0 && c.pass == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.head) > 0 {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	n, err := c.Conn.Read(p[:min(len(p), c.pass)])
	c.pass -= n
	return n, err
}

// next begins a frame, or the next part of a data frame.
func (c *frameConn) next() error {
	if c.rest > 0 {
		c.part()
		return nil
	}
	b := c.buf[:frameHeader]
	if _, err := io.ReadFull(c.Conn, b); err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(b[4:]) & 0xffffff)
	if b[0]&controlFrame == 0 {
		c.stream, c.flags, c.rest = binary.BigEndian.Uint32(b), b[4], size
		c.part()
		return nil
	}
	c.head, c.pass = b, size
	if binary.BigEndian.Uint16(b[2:]) == frameSynStream {
		return c.open(size)
	}
	return nil
}

// part begins a data frame of at most maxDataFrame bytes.
func (c *frameConn) part() {
	c.pass = min(c.rest, maxDataFrame)
	c.rest -= c.pass
	flags := c.flags
	if c.rest > 0 {
		flags &^= flagFin
	}
	binary.BigEndian.PutUint32(c.buf[:], c.stream)
	binary.BigEndian.PutUint32(c.buf[4:], uint32(flags)<<24|uint32(c.pass))
	c.head = c.buf[:frameHeader]
}

// open checks the id of a stream that the client opens.
func (c *frameConn) open(size int) error {
	if size < 4 {
		return errors.New("client sent a malformed SPDY frame")
	}
	if _, err := io.ReadFull(c.Conn, c.buf[frameHeader:]); err != nil {
		return err
	}
	id := binary.BigEndian.Uint32(c.buf[frameHeader:])
	if id%2 == 0 || id <= c.opened {
		return errors.New("client opened a SPDY stream with an id that it must not use")
	}
	c.opened, c.head, c.pass = id, c.buf[:], size-4
	return nil
}
