package runc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/subprocess"
)

var _ oci.Checkpointer = (*Runtime)(nil)

// Checkpoint implements oci.Checkpointer, with gVisor's runsc only: other runtimes are errdefs.ErrNotImplemented.
//
// The sandbox writes the images itself, to files that runsc has opened, and continues afterwards, also when it cannot
// write. runsc only waits for that, so killing it would hide when the containers run again.
func (r *Runtime) Checkpoint(ctx context.Context, id, dir string) error {
	if !r.capabilities().features.Checkpoints.Pods {
		return fmt.Errorf("%w: %s cannot checkpoint a pod, gVisor's runsc can", errdefs.ErrNotImplemented, r.cfg.Path)
	}
	b, err := r.bundle(id)
	if err != nil {
		return err
	}
	if _, err := checkRunning(b); err != nil {
		return err
	}
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return err
	}
	// Compressed images take seven times as long, and the containers wait for them.
	args := append(r.globalArgs(), "checkpoint", "--leave-running", "--compression=none", "--image-path", dir, id)
	cmd := exec.Command(path, args...)
	cmd.Env = driver.Environment()
	_, stderr, err := subprocess.Run(context.WithoutCancel(ctx), cmd, outputLimit)
	return checkpointError(stderr, err)
}

// checkpointError is the error of a checkpoint: errdefs.ErrResourceExhausted if a disk is full.
func checkpointError(stderr []byte, err error) error {
	var exit *exec.ExitError
	text := string(stderr)
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return fmt.Errorf("runsc checkpoint: %w", err)
	case strings.Contains(text, "no space left"), strings.Contains(text, "quota exceeded"):
		return fmt.Errorf("runsc checkpoint: %w: no space left for the images", errdefs.ErrResourceExhausted)
	}
	return fmt.Errorf("runsc checkpoint: %w: %s", err, shorten(text))
}

// shorten returns the beginning of a message of runsc, whose errors of a checkpoint or restore contain stacks.
func shorten(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line[:min(len(line), 500)]
}

// restoreSandbox has the runtime restore the sandbox's own container from image. The sandbox then waits for its other
// containers.
func (r *Runtime) restoreSandbox(ctx context.Context, b bundle, image string) error {
	_, err := r.runRuntime(ctx, nil, "restore", "--detach", "--image-path", image, b.ID())
	return err
}
