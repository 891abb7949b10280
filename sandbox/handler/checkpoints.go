package handler

import (
	"cmp"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
)

// CheckCheckpoints returns errdefs.ErrNotImplemented unless the pods of a handler can be checkpointed and restored.
func CheckCheckpoints(handler string, f oci.Features) error {
	if f.Checkpoints.Pods {
		return nil
	}
	return fmt.Errorf("%w: runtime handler %q cannot checkpoint and restore pods: %s", errdefs.ErrNotImplemented, handler,
		cmp.Or(f.Checkpoints.NoPods, "that needs a handler of type oci with runc or gVisor's runsc"))
}
