package shim

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/podd-project/podd/oci"
)

// workers finds the processes whose working directory is the bundle: its shim, and what the shim has just started.
// That is how a shim is found that no record names, and how one is told from a stranger. Paths are not compared but
// directories: a container can have a directory of any name.
func workers(b bundle) (found []oci.Process) {
	want, err := os.Stat(string(b))
	if err != nil {
		return nil
	}
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range cwds {
		have, err := os.Stat(cwd)
		if err != nil || !os.SameFile(have, want) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(cwd)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		if p, err := oci.Identify(pid); err == nil {
			found = append(found, p)
		}
	}
	return found
}

// killWorkers kills whatever works in the bundle.
func killWorkers(ctx context.Context, b bundle) error {
	var errs []error
	for _, p := range workers(b) {
		errs = append(errs, p.Kill(ctx))
	}
	return errors.Join(errs...)
}

// clean runs the shim's delete action, which removes what the runtime has of a container without a shim. What it
// answers of the container's end is not known but made up, and not used.
func (r *Runtime) clean(ctx context.Context, b bundle) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	_, err := r.act(ctx, b, "delete", nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the shim is not installed any more, or the bundle is gone
	}
	return err
}
