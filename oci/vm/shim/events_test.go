package shim

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/podd-project/podd/oci/vm/wire"
)

// heldStreams is more than the streams that a guest can have the host hold: what waits, and the one that is read.
const heldStreams = 20

// sessions returns both ends of a line, on whose host side the events of the guest are taken.
func sessions(t *testing.T) (host, guest *yamux.Session) {
	t.Helper()
	a, b := net.Pipe()
	host, err := wire.Host(a, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	guest, err = wire.Guest(b, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guest.Close() })
	s := &Service{ctx: t.Context()}
	p := newPod("p", Options{})
	p.session = host
	go s.watchEvents(p)
	return host, guest
}

// TestStreamsOfTheGuestAreNotKept: a guest that opens streams, fills them and never closes them does not have the host
// keep more than what wire.Host lets wait.
func TestStreamsOfTheGuestAreNotKept(t *testing.T) {
	host, guest := sessions(t)
	for range 5 * heldStreams {
		c, err := guest.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(append([]byte("no header\n"), make([]byte, 100<<10)...)) // the host may have refused the stream
		if host.NumStreams() > heldStreams {
			t.Fatalf("the host holds %d streams, want at most %d", host.NumStreams(), heldStreams)
		}
	}
}

// TestStreamsOfTheGuestAreTakenInTurn: streams that a guest closes, as an honest one does, are all taken.
func TestStreamsOfTheGuestAreTakenInTurn(t *testing.T) {
	host, guest := sessions(t)
	for range 2 * heldStreams {
		c, err := guest.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.WriteLine(c, wire.Header{Kind: wire.Event, ID: "unknown"}); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		for end := time.Now().Add(10 * time.Second); host.NumStreams() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the host holds %d streams that the guest has closed", host.NumStreams())
			}
		}
	}
}
