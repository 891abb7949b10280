package driver

import (
	"context"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// firstSizeTime is how long FirstSize waits: a program that reads the size only once reads it at its start.
const firstSizeTime = 50 * time.Millisecond

// FirstSize returns the client's first terminal size if it comes in time, otherwise the zero size.
func FirstSize(sizes <-chan oci.Size) oci.Size {
	if sizes == nil {
		return oci.Size{}
	}
	timer := time.NewTimer(firstSizeTime)
	defer timer.Stop()
	select {
	case z := <-sizes:
		return z
	case <-timer.C:
		return oci.Size{}
	}
}

// WithSize returns the process with that terminal size, unchanged for the zero size.
func WithSize(p *specs.Process, z oci.Size) *specs.Process {
	if z == (oci.Size{}) {
		return p
	}
	copied := *p
	copied.ConsoleSize = &specs.Box{Width: uint(z.Width), Height: uint(z.Height)}
	return &copied
}

// FollowSizes applies the client's sizes until they or ctx end. The zero size is skipped.
func FollowSizes(ctx context.Context, sizes <-chan oci.Size, apply func(oci.Size)) {
	for {
		select {
		case z, ok := <-sizes:
			if !ok {
				return
			}
			if z != (oci.Size{}) {
				apply(z)
			}
		case <-ctx.Done():
			return
		}
	}
}
