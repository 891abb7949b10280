package runc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Found returns the ids of everything that looks like a container in this handler's run directory: bundles, and
// monitors that live on without theirs. It looks at every process, so it is for occasions.
func (r *Runtime) List(context.Context) ([]string, error) {
	entries, err := os.ReadDir(r.cfg.RunDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list bundles: %w", err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	monitors, err := r.findMonitors()
	for id := range monitors {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// Reap is Delete, and kills monitors of the container that have lost their bundle, with all that runs below them.
func (r *Runtime) Destroy(ctx context.Context, id string) error {
	if err := r.Delete(ctx, id); err != nil {
		return err
	}
	monitors, err := r.findMonitors()
	errs := []error{err}
	for _, m := range monitors[id] {
		errs = append(errs, m.KillTree(ctx))
	}
	return errors.Join(errs...)
}

// monitors finds the living monitors of bundles in the run directory, by container.
func (r *Runtime) findMonitors() (map[string][]process.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for monitors: %w", err)
	}
	found := map[string][]process.Process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := process.Identify(pid) // before its command line is read: see findMonitor
		if err != nil {
			continue
		}
		if b := conmon.BundleOf(pid); filepath.Dir(b) == r.cfg.RunDir && driver.CheckID(filepath.Base(b)) == nil {
			found[filepath.Base(b)] = append(found[filepath.Base(b)], p)
		}
	}
	return found, nil
}
