package runc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// Create writes the bundle and starts the monitor, which has the runtime create the container. It returns the
// container's first process, which waits for Start.
//
// On failure, or when ctx or CreateTimeout ends, every process that it started has been killed. The bundle and the
// runtime's state remain: the caller must call Delete after any error but errdefs.ErrAlreadyExists. A
// command that cannot be run is an oci.ErrCommand.
func (r *Runtime) Create(ctx context.Context, req oci.CreateRequest) (process.Process, error) {
	b, err := r.bundle(req.ID)
	if err != nil {
		return process.Process{}, err
	}
	c, err := r.monitorConfig(b, req)
	if err != nil {
		return process.Process{}, err
	}
	if err := b.Create(r.configureCRIU(b, r.fixCrunSwapIn(r.sizeSandbox(req)))); err != nil {
		return process.Process{}, err
	}
	rec := record{Sandbox: r.sandboxOf(req), Log: req.Log, Image: req.Image}
	if req.Image != "" && rec.Sandbox == "" {
		return process.Process{}, b.prepareRestore(ctx, req, rec)
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CreateTimeout)
	defer cancel()
	stop := driver.WatchInit(req.Spec, func() process.Process { m, _ := findMonitor(b); return m })
	p, err := r.createContainer(ctx, b, c, rec)
	err = stop(err)
	if err == nil && rec.Sandbox == "" && !req.Terminal {
		err = chownInitPipes(p, req.Spec.Process)
	}
	if err != nil {
		return process.Process{}, errors.Join(fmt.Errorf("create container: %w", err), r.undoCreate(b, ctx.Err() != nil))
	}
	return p, nil
}

// monitorConfig returns how conmon is called for the container.
func (r *Runtime) monitorConfig(b bundle, req oci.CreateRequest) (conmon.Container, error) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return conmon.Container{}, err
	}
	monitor, err := r.lookup(r.cfg.Conmon)
	if err != nil {
		return conmon.Container{}, err
	}
	runtime := conmon.Runtime{Path: path, Args: r.globalArgs()}
	if isSubcontainer(req.ID, r.sandboxOf(req)) {
		runtime.Args = append(runtime.Args, "--log", b.subcontainerLog())
		runtime = r.viaInitProxy(runtime, req.Image)
	}
	c := conmon.Container{
		Conmon: monitor, Env: driver.Environment(), Runtime: runtime,
		ID: req.ID, Name: req.Name, Bundle: b.Dir(),
		Terminal: req.Terminal, Stdin: req.Stdin, StdinOnce: req.StdinOnce,
	}
	return c, c.Validate()
}

func (r *Runtime) createContainer(
	ctx context.Context, b bundle, c conmon.Container, rec record,
) (process.Process, error) {
	if rec.Log != (logfile.Log{}) {
		log, err := rec.Log.Open()
		if err != nil {
			return process.Process{}, err
		}
		defer log.Close()
		c.Log = log
	}
	pids, err := conmon.Create(ctx, c)
	var refused *conmon.Failure
	if errors.As(err, &refused) {
		verb := "create"
		if c.Restore != "" {
			verb = "restore"
		}
		name := commandName(c.Runtime.Path, []string{verb})
		return process.Process{}, driver.Failure(name, driver.Complaint([]byte(refused.Error())))
	}
	if err != nil {
		return process.Process{}, err
	}
	if rec.Monitor, err = process.Identify(pids.Monitor); err != nil {
		return process.Process{}, fmt.Errorf("conmon: %w", err)
	}
	// The monitor is alive and the parent: the pid cannot have been reused, even if the process has died.
	if rec.Init, err = process.Identify(pids.Init); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("the container's first process has died, a seccomp profile can be the cause: %w", err)
		}
		return process.Process{}, err
	}
	rec.Cgroups = r.ownCgroups(b, rec)
	if rec.Restore != nil {
		if err := b.adjustRestored(rec.Cgroups); err != nil {
			return process.Process{}, err
		}
	}
	rec.Start, rec.Cgroup = r.withoutRuntime(b, rec)
	if r.cfg.SystemdCgroup {
		rec.PodOOMs = rec.Cgroups.OOMBaseline(b.ID())
	}
	if err := b.save(rec); err != nil {
		return process.Process{}, err
	}
	if rec.Sandbox == b.ID() { // see sizeSandbox
		return rec.Init, rec.Cgroups.LiftLimits()
	}
	return rec.Init, nil
}

// undoCreate kills the monitor of a failed creation and all its descendants: the runtime, hooks, the container. If the
// creation was interrupted, conmon may have been killed after its fork, before it has written the monitor's pid.
func (r *Runtime) undoCreate(b bundle, interrupted bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	var monitors []process.Process
	m, ok := findMonitor(b)
	switch {
	case ok:
		monitors = append(monitors, m)
	case interrupted:
		all, err := r.scanMonitors(0)
		if err != nil {
			return err
		}
		monitors = all[b.ID()]
	}
	for _, m := range monitors {
		if err := m.KillTree(ctx); err != nil {
			return fmt.Errorf("kill processes of the creation: %w", err)
		}
	}
	return nil
}

// awaitMonitor is findMonitor for a creation that a killed podd has begun: conmon may have forked and not written the
// pid yet. It returns false once no conmon runs for the bundle.
func (r *Runtime) awaitMonitor(ctx context.Context, b bundle) (m process.Process, ok bool, err error) {
	errPoll := process.Poll(ctx, func() bool {
		if m, ok = findMonitor(b); ok {
			return true
		}
		var monitors map[string][]process.Process
		monitors, err = r.scanMonitors(0)
		return err != nil || len(monitors[b.ID()]) == 0
	})
	return m, ok, errors.Join(errPoll, err)
}

// findMonitor returns the bundle's monitor, if it is alive: by its pid file, verified by its command line. It is used
// for bundles without a record.
func findMonitor(b bundle) (process.Process, bool) {
	pid, err := conmon.MonitorPid(b.Dir())
	if err != nil {
		return process.Process{}, false
	}
	p, ok := process.FindLocal(pid)
	return p.Process, ok && conmon.Watches(pid, b.Dir())
}
