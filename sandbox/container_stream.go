package sandbox

import (
	"context"

	"github.com/podd-project/podd/oci"
)

// Exec runs cmd in a running container, connected to a client, and returns its exit code. The command's process tree
// is killed when ctx ends.
func (e *Engine) Exec(ctx context.Context, id string, cmd []string, terminal bool, s oci.Streams) (int32, error) {
	c, rt, err := e.running(id)
	if err != nil {
		return 0, err
	}
	process, release, err := e.execProcess(c, cmd, terminal)
	if err != nil {
		return 0, err
	}
	defer release()
	return rt.Exec(ctx, c.ID, process, s)
}

// Attach connects a client to the first process of a running container, in addition to other clients and the log, until
// the process or ctx ends.
func (e *Engine) Attach(ctx context.Context, id string, s oci.Streams) error {
	c, rt, err := e.running(id)
	if err != nil {
		return err
	}
	return rt.Attach(ctx, c.ID, s)
}
