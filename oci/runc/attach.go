package runc

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Attach connects a client to the first process of a running container, in addition to other clients and the log. It
// returns when the container's output has ended (nil), the client is gone or too slow, or ctx ends. The container is
// affected only through its stdin: when Stdin ends, a container with StdinOnce and no terminal gets its end of input.
func (r *Runtime) Attach(ctx context.Context, id string, s oci.Streams) error {
	b, rec, err := r.open(id)
	if err != nil {
		return err
	}
	if !rec.Init.Alive() {
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrFailedPrecondition)
	}
	conn, err := conmon.Attach(b.Dir())
	if err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	resize := func(z oci.Size) { _ = conmon.Resize(b.Dir(), z.Width, z.Height) }
	relay := driver.Relay{Conn: conn, Streams: s, Resize: resize, Patience: driver.AttachPatience(s)}
	if err := relay.Run(ctx); err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	return nil
}
