package daemon

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/sandbox"
)

// retiredHandler replaces a handler that is no longer configured but still has containers. conmon's files are enough
// to wait for and kill those of an OCI runtime; the runtime itself is not needed. Containers of a shim it leaves alone:
// only the shim's handler can end them.
type retiredHandler struct {
	*runc.Runtime
	name, dir string
}

// retiredHandler returns the replacement of the handler with that name.
func (d *daemon) retiredHandler(name string) sandbox.Runtime {
	d.log.WithField("handler", name).
		Warn("pods exist of a runtime handler that is no longer configured: they can only be stopped and removed")
	return retiredHandler{runc.New(d.cfg.RuncConfig(name, settings.HandlerTable{})), name, d.cfg.ContainersDir()}
}

func (r retiredHandler) Wait(ctx context.Context, id string) (oci.Exit, error) {
	if err := r.check(id); err != nil {
		return oci.Exit{}, err
	}
	return r.Runtime.Wait(ctx, id)
}

func (r retiredHandler) Delete(ctx context.Context, id string) error {
	if err := r.check(id); err != nil {
		return err
	}
	return r.Runtime.Delete(ctx, id)
}

// check returns an error for a container that exists and has no conmon.
func (r retiredHandler) check(id string) error {
	if _, err := os.Lstat(filepath.Join(r.dir, id)); err != nil || r.HasRecord(id) {
		return nil
	}
	return fmt.Errorf("%w: container %s belongs to handler %q, which is not configured: configure it again to remove it",
		errdefs.ErrUnavailable, id, r.name)
}
