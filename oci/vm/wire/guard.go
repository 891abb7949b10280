package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The header of yamux's frames (github.com/hashicorp/yamux/blob/master/spec.md): version, type, flags, stream, length.
const (
	muxHeader = 12
	// Positions in the header.
	muxVersion, muxType, muxLength = 0, 1, 8
	// Types.
	muxData, muxPing = 0, 2
)

// guard lets frames of yamux through but pings: yamux starts a goroutine for each, which waits until the answer is
// sent, so a guest that pings and does not read would use up the host's memory. An honest guest sends none.
type guard struct {
	io.ReadWriteCloser
	// header is the frame's header so far, content the number of its bytes that are still to come.
	header  []byte
	content uint32
}

// Read reads at most the rest of a header or of a frame's content.
func (g *guard) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if g.content > 0 {
		n, err := g.ReadWriteCloser.Read(b[:min(uint32(min(len(b), 1<<30)), g.content)])
		g.content -= uint32(n)
		return n, err
	}
	n, err := g.ReadWriteCloser.Read(b[:min(len(b), muxHeader-len(g.header))])
	g.header = append(g.header, b[:n]...)
	if len(g.header) == muxHeader {
		if g.header[muxVersion] != 0 || g.header[muxType] == muxPing {
			return 0, fmt.Errorf("%w: version %d, type %d", ErrFrame, g.header[muxVersion], g.header[muxType])
		}
		if g.header[muxType] == muxData {
			g.content = binary.BigEndian.Uint32(g.header[muxLength:])
		}
		g.header = g.header[:0]
	}
	return n, err
}
