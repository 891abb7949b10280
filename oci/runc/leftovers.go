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

// List returns the ids of everything that looks like a container in this handler's run directory: bundles, and
// monitors whose bundles are gone. It reads every process of the machine.
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

// Destroy is Delete, and also kills monitors of the container whose bundle is gone, with their descendants.
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

// findMonitors returns the running monitors of bundles in the run directory, by container.
func (r *Runtime) findMonitors() (map[string][]process.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find monitors: %w", err)
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
