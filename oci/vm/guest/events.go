package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/hashicorp/yamux"
	"golang.org/x/sync/singleflight"

	"github.com/podd-project/podd/oci/vm/wire"
)

// publisher sends the task service's event of an out-of-memory kill to the host. The host knows the others from the
// task API.
type publisher struct{ host *host }

// Publish does not wait for the host: the task service would handle no exit until then.
func (p publisher) Publish(_ context.Context, _ string, e events.Event) error {
	if oom, ok := e.(*eventsapi.TaskOOM); ok {
		go p.host.tellOOM(oom.ContainerID)
	}
	return nil
}

func (publisher) Close() error { return nil }

// host is whom the guest tells of events.
type host struct {
	session *yamux.Session
	// telling joins those who tell of one container: each connection of the host has its own Wait.
	telling singleflight.Group
	// one is full while a stream to the host is open: the host takes one at a time, see wire.Host.
	one chan struct{}
}

// tellOOM tells the host that a process of a container was killed for lack of memory. It returns when the host has
// published it, or after tellTimeout.
func (h *host) tellOOM(id string) {
	_, err, _ := h.telling.Do(id, func() (any, error) {
		return nil, h.send(wire.Header{Kind: wire.Event, ID: id})
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "podd-vm-agent: tell the host of an out-of-memory kill: %v\n", err)
	}
}

// tellTimeout is how long the host may take to publish an event.
const tellTimeout = 15 * time.Second

// send sends an event and waits for the answer.
func (h *host) send(event wire.Header) error {
	h.one <- struct{}{}
	defer func() { <-h.one }()
	c, err := h.session.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(tellTimeout)); err != nil {
		return err
	}
	if err := wire.WriteLine(c, event); err != nil {
		return err
	}
	var r wire.Result
	if err := wire.ReadLine(c, &r); err != nil {
		return err
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}
