package runc

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/podd-project/podd/oci/runc/starter"
)

// The first process of a container of runc or crun waits on a FIFO in the runtime's state. All that `<runtime> start`
// does for most containers is to release it and to remove the FIFO, which the starter does in a tenth of the time. The
// FIFO is no interface of the runtimes: only versions are started by it whose source has been read.

// startWay returns how the starter can start the new container, "" if only the runtime can. crun's start also runs
// poststart hooks.
func (r *Runtime) startWay(c loadedConfig) starter.Way {
	if r.cfg.Starter == "" || len(c.Hooks.Poststart) > 0 {
		return ""
	}
	return r.knownWay()
}

// knownWay returns how the starter releases a process of the runtime, "" if its source has not been read.
func (r *Runtime) knownWay() starter.Way {
	version := r.Features().Version
	known := func(prefix, least string) bool {
		return atLeast(version, prefix, least) && !atLeast(version, prefix, "2")
	}
	switch {
	case known("runc version ", "1.1"):
		return starter.Read
	case known("crun version ", "1.8"):
		return starter.Write
	}
	return ""
}

// fifo is where the first process of the container waits.
func (r *Runtime) fifo(b bundle) string { return filepath.Join(r.cfg.Root, b.ID(), "exec.fifo") }

// waits reports whether the container waits for its start. The error is starter.ErrNoFIFO if only the runtime can tell.
//
// The FIFO is still there, and the runtime says that the container waits, if a starter was killed after it had released
// the container. Then waits removes it.
func (r *Runtime) waits(b bundle, rec record) (bool, error) {
	if rec.Start == "" {
		return false, starter.ErrNoFIFO
	}
	waits, err := starter.Waits(rec.Init, r.fifo(b))
	if err != nil || waits {
		return waits, err
	}
	if err := os.Remove(r.fifo(b)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return false, nil
}

// runStart starts the container, which the starter does if it can. It survives podd, as the runtime would.
func (r *Runtime) runStart(ctx context.Context, b bundle, rec record) error {
	waits, err := r.waits(b, rec)
	if err == nil && !waits && rec.Init.Alive() {
		return nil // it was started before
	}
	// runc refuses to start a frozen container.
	if err == nil && waits && r.cfg.Starter != "" && !b.frozen(rec) {
		err := r.runStarter(ctx, b, rec)
		var cannot *fs.PathError // the starter cannot be executed
		if !errors.As(err, &cannot) {
			return err
		}
	}
	_, err = r.runRuntime(ctx, nil, "start", b.ID())
	return err
}

// runStarter runs the starter, with the runtime's start as the command to execute if it cannot do it.
func (r *Runtime) runStarter(ctx context.Context, b bundle, rec record) error {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return err
	}
	start := append(r.globalArgs(), "start", b.ID())
	name := commandName(path, start)
	args := starter.Args(rec.Start, r.fifo(b), rec.Init.Pid, append([]string{path}, start...)...)
	_, err = runNamed(ctx, name, exec.Command(r.cfg.Starter, args...))
	return err
}
