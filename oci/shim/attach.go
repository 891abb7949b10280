package shim

import (
	"context"
	"fmt"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
	"github.com/podd-project/podd/oci/shim/stdio"
)

// Attach connects a client to the first process of a running container, in addition to other clients and the log. It
// returns when the container's output has ended (nil), the client is gone or too slow, or ctx ends. The container is
// affected only through its stdin: when Stdin ends, a container with StdinOnce and no terminal gets its end of input.
func (r *Runtime) Attach(ctx context.Context, id string, s oci.Streams) error {
	_, conn, err := r.reachContainer(ctx, id)
	if err != nil {
		return err
	}
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	cfg, err := stdio.Load(b.Dir())
	if err != nil {
		return fmt.Errorf("container %s: %w: %w", id, err, errdefs.ErrFailedPrecondition)
	}
	client, err := conmon.Attach(b.Dir())
	if err != nil {
		return fmt.Errorf("container %s: %w", id, err)
	}
	resize := func(z oci.Size) {
		// An exited container has no terminal to resize.
		request := &task.ResizePtyRequest{ID: id, Width: uint32(z.Width), Height: uint32(z.Height)}
		_ = conn.call(ctx, "ResizePty", request, empty())
	}
	ended := func() {
		if cfg.Stdin && cfg.StdinOnce && !cfg.Terminal { // the shim would hang up the terminal
			// The stdio process closes its end of the pipe, the shim its own.
			_ = conn.call(ctx, "CloseIO", &task.CloseIORequest{ID: id, Stdin: true}, empty())
		}
	}
	relay := driver.Relay{
		Conn: client, Streams: s, Resize: resize, InputEnded: ended, Patience: driver.AttachPatience(s),
	}
	if err := relay.Run(ctx); err != nil {
		return fmt.Errorf("attach to container %s: %w", id, err)
	}
	return nil
}
