package runc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podd-project/podd/oci"
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
	monitors, err := r.scanMonitors(0)
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
	monitors, err := r.scanMonitors(scanAge)
	errs := []error{err}
	for _, m := range monitors[id] {
		errs = append(errs, m.KillTree(ctx))
	}
	return errors.Join(errs...)
}

// commandFiles is the prefix of the files of all commands, ownCommand of those that this podd runs.
const commandFiles = "exec-"

var ownCommand = commandFiles + rand.Text()[:8] + "-"

// commandPattern is the pattern of the files of a command, os.CreateTemp: they have the id of the CRI call.
func commandPattern(ctx context.Context) string { return ownCommand + oci.Request(ctx) + "-*" }

// RemoveLostCommands removes leftovers of commands of a stopped podd: their files in the bundles, and their cgroups,
// which would stay as long as the container. A command that still runs moves to the container's cgroup.
func (r *Runtime) RemoveLostCommands(ctx context.Context) error {
	found, err := filepath.Glob(filepath.Join(r.cfg.RunDir, "*", commandFiles+"*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range found {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !strings.HasPrefix(filepath.Base(path), ownCommand) {
			errs = append(errs, r.removeLostCommand(path))
		}
	}
	return errors.Join(errs...)
}

// removeLostCommand removes one of a command's files. With the process description, or the directory of a terminal,
// goes the cgroup.
func (r *Runtime) removeLostCommand(path string) error {
	b, err := r.bundle(filepath.Base(filepath.Dir(path)))
	if err != nil {
		return err
	}
	rec, err := b.load()
	if err != nil || rec.Monitor == (process.Process{}) { // gVisor's shim writes a state.json, too
		return nil //nolint:nilerr // a shim's bundle, or an incomplete one: it removes them itself, or goes as a whole
	}
	if ext := filepath.Ext(path); ext == ".json" || ext == "" {
		rec.Cgroups.ExecGroup(execGroupName(path)).Remove()
	}
	return os.RemoveAll(path)
}

// monitorScan is the last scan for monitors.
type monitorScan struct {
	mu    sync.Mutex
	at    time.Time
	found map[string][]process.Process
}

// scanAge is how old a scan may be for Destroy: podd destroys all leftovers one by one, and a scan for each would take
// time that grows with the square of their number. Processes are identified by their start time, so an old scan cannot
// name a wrong one.
const scanAge = time.Second

// scanMonitors returns the running monitors of bundles in the run directory, by container. It uses the last scan unless
// that is older than maxAge.
//
// A command line is believed only of conmon's own program, run by root. A podd in another mount namespace has a run
// different directory at the same path, and its own monitors.
func (r *Runtime) scanMonitors(maxAge time.Duration) (map[string][]process.Process, error) {
	r.scan.mu.Lock()
	defer r.scan.mu.Unlock()
	if r.scan.found != nil && time.Since(r.scan.at) < maxAge {
		return r.scan.found, nil
	}
	began := time.Now()
	locals, err := process.Locals()
	if err != nil {
		return nil, fmt.Errorf("find monitors: %w", err)
	}
	program, found := r.monitorProgram(), map[string][]process.Process{}
	for _, p := range locals {
		if !p.SharesMounts || p.Program != program && filepath.Base(p.Program) != "conmon" {
			continue
		}
		if b := conmon.BundleOf(p.Pid); filepath.Dir(b) == r.cfg.RunDir && driver.CheckID(filepath.Base(b)) == nil {
			found[filepath.Base(b)] = append(found[filepath.Base(b)], p.Process)
		}
	}
	r.scan.at, r.scan.found = began, found
	return found, nil
}

// monitorProgram returns the path of conmon's executable, "" if it is not installed.
func (r *Runtime) monitorProgram() string {
	path, err := r.lookup(r.cfg.Conmon)
	if err != nil {
		return ""
	}
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	return target
}
