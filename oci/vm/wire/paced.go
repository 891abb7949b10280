package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// frameLimit is the size of a frame's content, in bytes. The serial line of User-Mode Linux stalls when
	// about 4 KiB are in flight (its tty is throttled and never released), so at most windowSize frames are.
	frameLimit = 1 << 10
	windowSize = 3
	// frameHeader is the length of a frame, big endian. Length 0 acknowledges a frame of the other side.
	frameHeader = 2
)

// ErrFrame is the error for a frame that no correct peer sends.
var ErrFrame = errors.New("malformed frame")

// Paced carries a byte stream over a line that cannot take more than a few kilobytes at a time: frames, of which
// windowSize may be unacknowledged.
type Paced struct {
	line io.ReadWriteCloser
	// in has the bytes that the other side has sent; the reader of Paced takes it.
	in *io.PipeReader
	// window has a place for each unacknowledged frame.
	window chan struct{}
	// done is closed when the line has ended.
	done chan struct{}

	writing sync.Mutex // one Write at a time
	sending sync.Mutex // one frame on the line at a time
}

// NewPaced starts to read the line. Close the result to end it.
func NewPaced(line io.ReadWriteCloser) *Paced {
	r, w := io.Pipe()
	p := &Paced{line: line, in: r, window: make(chan struct{}, windowSize), done: make(chan struct{})}
	received := make(chan []byte, windowSize)
	go p.deliver(received, w)
	go p.receive(received)
	return p
}

// deliver passes frames on and acknowledges them.
func (p *Paced) deliver(received <-chan []byte, w *io.PipeWriter) {
	for frame := range received {
		if _, err := w.Write(frame); err != nil {
			continue // closed; the line is read until its end
		}
		if err := p.send(nil); err != nil {
			_ = p.line.Close()
		}
	}
	_ = w.Close()
}

// receive reads frames until the line ends or a frame is malformed, which closes the line.
func (p *Paced) receive(received chan<- []byte) {
	defer close(p.done)
	defer close(received)
	defer p.line.Close()
	in := bufio.NewReaderSize(p.line, windowSize*(frameLimit+frameHeader))
	for {
		frame, err := readFrame(in)
		if err != nil {
			return
		}
		if frame == nil {
			select {
			case <-p.window:
				continue
			default:
				return // an acknowledgement of nothing
			}
		}
		select {
		case received <- frame:
		default:
			return // more than the window
		}
	}
}

// readFrame returns nil for an acknowledgement.
func readFrame(r io.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(header[:]))
	if n == 0 {
		return nil, nil
	}
	if n > frameLimit {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrFrame, n, frameLimit)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}

func (p *Paced) send(frame []byte) error {
	p.sending.Lock()
	defer p.sending.Unlock()
	_, err := p.line.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(frame))), frame...))
	return err
}

// Read reads the bytes of the other side.
func (p *Paced) Read(b []byte) (int, error) { return p.in.Read(b) }

// Write returns when the line has taken everything. The end of the line is io.ErrClosedPipe.
func (p *Paced) Write(b []byte) (n int, err error) {
	p.writing.Lock()
	defer p.writing.Unlock()
	for len(b) > 0 {
		select {
		case p.window <- struct{}{}:
		case <-p.done:
			return n, io.ErrClosedPipe
		}
		frame := b[:min(len(b), frameLimit)]
		if err := p.send(frame); err != nil {
			return n, err
		}
		n, b = n+len(frame), b[len(frame):]
	}
	return n, nil
}

// Close closes the line.
func (p *Paced) Close() error {
	_ = p.in.Close()
	return p.line.Close()
}
