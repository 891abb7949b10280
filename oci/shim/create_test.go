package shim

import (
	"context"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/podd-project/podd/oci"
)

// TestRefusalKeepsItsKind: what a shim refuses has the shim's kind, unless the text says more.
func TestRefusalKeepsItsKind(t *testing.T) {
	for _, c := range []struct {
		text       string
		kind, want error
	}{
		{"a unikernel has no volumes", errdefs.ErrInvalidArgument, errdefs.ErrInvalidArgument},
		{"one container at a time", errdefs.ErrFailedPrecondition, errdefs.ErrFailedPrecondition},
		{"exec: the pod is a unikernel", errdefs.ErrNotImplemented, errdefs.ErrNotImplemented},
		{"container x does not exist", errdefs.ErrInvalidArgument, errdefs.ErrNotFound},
		{`exec: "x": executable file not found in $PATH`, errdefs.ErrInvalidArgument, oci.ErrCommand},
		{"the guest's disk is broken", errdefs.ErrUnknown, errdefs.ErrUnknown},
		{"the guest names no pod", errdefs.ErrNotFound, errdefs.ErrUnknown}, // the container is not gone
	} {
		err := runtimeError(context.Background(), errgrpc.ToNative(errgrpc.ToGRPCf(c.kind, "%s", c.text)))
		if got := errdefs.Resolve(err); !errors.Is(got, c.want) && !errors.Is(err, c.want) {
			t.Errorf("error of the shim %q, %v = %v (kind %v), want kind %v", c.text, c.kind, err, got, c.want)
		}
	}
}
