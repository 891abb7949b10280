package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// throttled is a line that holds few bytes: it fails the test if more are in flight, as User-Mode Linux's would stall.
type throttled struct {
	net.Conn
	t *testing.T
}

func (l throttled) Write(b []byte) (int, error) {
	if len(b) > frameLimit+frameHeader {
		l.t.Errorf("%d bytes in one write, want at most %d", len(b), frameLimit+frameHeader)
	}
	return l.Conn.Write(b)
}

func pacedPair(t *testing.T) (*Paced, *Paced) {
	a, b := net.Pipe()
	x, y := NewPaced(throttled{a, t}), NewPaced(throttled{b, t})
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

// TestPacedCarriesBothWays: what is written arrives in order, both ways at once.
func TestPacedCarriesBothWays(t *testing.T) {
	x, y := pacedPair(t)
	data := make([]byte, 300<<10)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(data)
	got := make(chan []byte, 2)
	for _, p := range []*Paced{x, y} {
		go func() {
			b := make([]byte, len(data))
			_, _ = io.ReadFull(p, b)
			got <- b
		}()
		go func() {
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+rand.IntN(5000))
				if _, err := p.Write(rest[:n]); err != nil {
					t.Errorf("Write = %v", err)
					return
				}
				rest = rest[n:]
			}
		}()
	}
	for range 2 {
		if !bytes.Equal(<-got, data) {
			t.Error("other bytes arrived than were written")
		}
	}
}

// TestPacedWaitsForItsReader: an unread line takes no more than a window and what is being delivered.
func TestPacedWaitsForItsReader(t *testing.T) {
	x, _ := pacedPair(t)
	written := make(chan int)
	go func() {
		n, _ := x.Write(make([]byte, 100*frameLimit))
		written <- n
	}()
	select {
	case n := <-written:
		t.Errorf("Write of %d bytes returned before anyone has read, want it to wait", n)
	case <-time.After(100 * time.Millisecond):
	}
	x.Close()
	if n := <-written; n > (windowSize+1)*frameLimit {
		t.Errorf("%d bytes were sent, want at most a window", n)
	}
}

// TestPacedEndsOnMalformedInput: a peer that breaks the protocol ends the line and nothing else.
func TestPacedEndsOnMalformedInput(t *testing.T) {
	for name, input := range map[string][]byte{
		"frame too long":                 {0xff, 0xff, 1},
		"acknowledgement of nothing":     {0, 0},
		"more frames than the window":    bytes.Repeat([]byte{0, 1, 'x'}, 100),
		"end within a frame":             {0, 9, 'x'},
		"end within the length of frame": {0},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			p := NewPaced(a)
			go func() {
				_, _ = b.Write(input)
				_ = b.Close()
			}()
			select {
			case <-p.done:
			case <-time.After(10 * time.Second):
				t.Fatal("the line is still read, want it to end")
			}
			if _, err := p.Write([]byte("x")); err == nil {
				t.Error("Write = nil after the end, want an error")
			}
		})
	}
}

// FuzzPaced: no input of a guest makes the host's end panic, hang or keep more than a window.
func FuzzPaced(f *testing.F) {
	f.Add([]byte{0, 3, 'a', 'b', 'c', 0, 0, 0xff})
	f.Fuzz(func(t *testing.T, input []byte) {
		a, b := net.Pipe()
		p := NewPaced(a)
		go io.Copy(io.Discard, b) //nolint:errcheck // acknowledgements
		go func() {
			_, _ = b.Write(input)
			_ = b.Close()
		}()
		n, err := io.Copy(io.Discard, p)
		if n > int64(len(input)) {
			t.Errorf("%d bytes from %d", n, len(input))
		}
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Read = %v", err)
		}
		<-p.done
	})
}
