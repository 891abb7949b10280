package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/sandbox"
)

// formerHandler is a handler that is not configured any more, for the containers that it has left. To watch and kill
// them takes the monitor's files, not the runtime. What was made in another way (by a shim) it leaves alone: only the
// handler itself knows it.
type formerHandler struct {
	*runc.Runtime
	name, dir string
}

// former makes the handler as if nothing but its name had been configured.
func (d *daemon) former(name string) sandbox.Runtime {
	d.log.WithField("handler", name).Warn("there are pods of a runtime handler that is not configured any more: they are watched and can be removed")
	return formerHandler{runc.New(d.handlerConfig(name, HandlerTable{})), name, d.containersDir()}
}

func (f formerHandler) Wait(ctx context.Context, id string) (oci.Exit, error) {
	if err := f.check(id); err != nil {
		return oci.Exit{}, err
	}
	return f.Runtime.Wait(ctx, id)
}

func (f formerHandler) Delete(ctx context.Context, id string) error {
	if err := f.check(id); err != nil {
		return err
	}
	return f.Runtime.Delete(ctx, id)
}

// check is nil for what a monitor watches, or what has left nothing.
func (f formerHandler) check(id string) error {
	if _, err := os.Lstat(filepath.Join(f.dir, id)); err != nil || f.Made(id) {
		return nil
	}
	return fmt.Errorf("%w: container %s was made by handler %q: configure that again to be rid of it", errdefs.ErrUnavailable, id, f.name)
}
