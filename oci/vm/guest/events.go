package guest

import (
	"context"

	eventsapi "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"

	"github.com/podd-project/podd/oci/vm/wire"
)

// publisher sends the task service's event of an out-of-memory kill to the host. The host knows the others from the
// task API.
type publisher struct{ a *agent }

func (p publisher) Publish(_ context.Context, _ string, e events.Event) error {
	oom, ok := e.(*eventsapi.TaskOOM)
	if !ok || p.a.session == nil {
		return nil
	}
	c, err := p.a.session.Open()
	if err != nil {
		return err
	}
	defer c.Close()
	return wire.WriteLine(c, wire.Header{Kind: wire.Event, ID: oom.ContainerID})
}

func (publisher) Close() error { return nil }
