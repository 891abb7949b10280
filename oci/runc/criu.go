package runc

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
)

// minCRIU is the oldest CRIU that podd uses. Earlier ones crash when a runtime passes them a file with the option
// network-lock (https://github.com/checkpoint-restore/criu/pull/3051).
const minCRIU = "4.2.1"

// probeCheckpoints returns what a runtime of this version can checkpoint.
func (r *Runtime) probeCheckpoints(ctx context.Context, version string) oci.Checkpoints {
	if ownKernel(version) {
		return oci.Checkpoints{
			Pods: true, NoContainers: "gVisor saves all containers of a pod together, CheckpointPod does that",
		}
	}
	c := oci.Checkpoints{NoPods: "that needs a handler of type oci with gVisor's runsc"}
	if !strings.HasPrefix(version, "runc ") {
		c.NoContainers = "that needs runc"
		return c
	}
	path, err := r.lookupCRIU(ctx)
	if err == nil {
		_, err = runCommand(ctx, driver.Command{Path: path, Args: []string{"check"}}) // of the kernel
	}
	if c.Containers = err == nil; err != nil {
		c.NoContainers = err.Error()
	}
	return c
}

// lookupCRIU returns the path of CRIU: errdefs.ErrNotImplemented if there is none, or an old one.
func (r *Runtime) lookupCRIU(ctx context.Context) (string, error) {
	if r.cfg.CRIU == "" {
		return "", fmt.Errorf("%w: runtime.criu is empty", errdefs.ErrNotImplemented)
	}
	path, err := driver.LookPath(r.cfg.Name, r.cfg.CRIU, r.cfg.SearchPath)
	if err != nil {
		return "", fmt.Errorf("%w: CRIU is not installed: %w", errdefs.ErrNotImplemented, err)
	}
	out, err := runCommand(ctx, driver.Command{Path: path, Args: []string{"--version"}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errdefs.ErrNotImplemented, err)
	}
	version, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if !atLeast(version, "Version: ", minCRIU) {
		return "", fmt.Errorf("%w: %s is %.100q, CRIU %s is needed", errdefs.ErrNotImplemented, path, version, minCRIU)
	}
	return path, nil
}
