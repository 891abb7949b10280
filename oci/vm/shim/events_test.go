package shim

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/hashicorp/yamux"

	"github.com/podd-project/podd/oci/vm/wire"
)

// heldStreams is more than the streams that a guest can have the host hold: what waits, and the one that is read.
const heldStreams = 20

// sessions returns both ends of a line, on whose host side the events of the guest are taken for some containers.
func sessions(t *testing.T, publisher shim.Publisher, containers ...string) (host, guest *yamux.Session) {
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
	s := &Service{ctx: t.Context(), publisher: publisher}
	p := newPod("p", Options{})
	for _, id := range containers {
		p.containers[id] = time.Time{}
	}
	p.session = host
	go s.watchEvents(p)
	return host, guest
}

// TestStreamsOfTheGuestAreNotKept: a guest that opens streams, fills them and never closes them does not have the host
// keep more than what wire.Host lets wait.
func TestStreamsOfTheGuestAreNotKept(t *testing.T) {
	host, guest := sessions(t, nil)
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
	host, guest := sessions(t, nil)
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

// TestEventIsAnsweredWhenPublished: the guest waits for the answer before it reports the exit of the container. A
// publication that fails is repeated.
func TestEventIsAnsweredWhenPublished(t *testing.T) {
	published := &recorder{refusals: 2}
	_, guest := sessions(t, published, "c")
	for _, id := range []string{"unknown", "c"} {
		c, err := guest.Open()
		if err != nil {
			t.Fatal(err)
		}
		if err := wire.WriteLine(c, wire.Header{Kind: wire.Event, ID: id}); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		var r wire.Result
		if err := wire.ReadLine(c, &r); err != nil || r.Error != "" {
			t.Errorf("answer to the event of %s = %+v, %v, want success", id, r, err)
		}
		_ = c.Close()
	}
	if got := published.containers(); !slices.Equal(got, []string{"c"}) {
		t.Errorf("published when the answers had come: %q, want c", got)
	}
}

// recorder publishes nothing, and keeps the containers of the events, after a delay and some refusals.
type recorder struct {
	mu       sync.Mutex
	refusals int
	ids      []string
}

func (r *recorder) Publish(_ context.Context, _ string, e events.Event) error {
	time.Sleep(20 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals > 0 {
		r.refusals--
		return errors.New("nobody takes events")
	}
	r.ids = append(r.ids, e.(*eventsapi.TaskOOM).GetContainerID())
	return nil
}

func (*recorder) Close() error { return nil }

func (r *recorder) containers() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ids)
}
