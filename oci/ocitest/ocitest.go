// Package ocitest checks that all OCI runtime handlers behave alike: Suite runs on the real runtimes, on containerd's
// shims, and on Fake, a handler in memory. The tests of sandbox and server/adapt_test.go run the engine on Fake, so the
// engine must not rely on a behaviour that Suite does not check.
//
// It is for tests only.
package ocitest

import (
	"context"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// Runtime is a handler that can also freeze containers.
type Runtime interface {
	oci.Runtime
	Pause(ctx context.Context, id string) error
	Resume(ctx context.Context, id string) error
}

// Harness is one handler under test.
type Harness struct {
	// New returns a Runtime on the same state as the ones before: what a restarted daemon would make.
	New func() Runtime
	// Spec returns the config.json of a container that runs the command.
	Spec func(args ...string) *specs.Spec
	// LogDir is a directory for log files.
	LogDir string
	// Bundles is the directory of the containers' bundles: <Bundles>/<id>/config.json.
	Bundles string
	// SharedLimits says that containers have the limits of their sandbox only: Update returns oci.ErrNoEffect.
	SharedLimits bool
}

// NewHarness makes a fresh handler whose clean-up checks that nothing is left.
type NewHarness func(t *testing.T) *Harness
