package runc

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// unknownCode is reported when nobody saw the container end.
const unknownCode = 255

// reapTimeout bounds the killing of what a container left behind.
const reapTimeout = 10 * time.Second

// watch is shared by the calls of Wait for one container. Delete removes the exit file: it settles the watch
// first.
type watch struct {
	waiters int
	exit    *oci.Exit
}

// Wait returns when the container has ended and its output is written, by whichever daemon it was started.
// It needs no thread: the goroutine is parked until the monitor ends. A monitor that was killed does not end
// the wait; the container's first process does, and the exit status is then unknown.
//
// Processes that the container leaves behind in a shared PID namespace are killed: they are part of it.
// errdefs.ErrNotFound for a container that was never created completely.
func (r *Runtime) Wait(ctx context.Context, id string) (oci.Exit, error) {
	b, err := r.bundle(id)
	if err != nil {
		return oci.Exit{}, err
	}
	w := r.watch(id)
	defer r.unwatch(id)
	rec, err := b.load()
	if err != nil {
		return oci.Exit{}, err
	}
	for _, p := range []process.Process{rec.Monitor, rec.Init} {
		if err := p.Wait(ctx); err != nil {
			return oci.Exit{}, fmt.Errorf("wait for container %s: %w", id, err)
		}
	}
	exit := ended(b, rec)
	r.mu.Lock()
	if w.exit != nil && !exit.Known {
		exit = *w.exit
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reapTimeout)
	defer cancel()
	// What cannot be killed now is killed by Delete, which says so.
	_ = rec.Cgroups.Kill(ctx)
	return exit, nil
}

// watch registers a call of Wait.
func (r *Runtime) watch(id string) *watch {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watches[id]
	if w == nil {
		w = &watch{}
		r.watches[id] = w
	}
	w.waiters++
	return w
}

func (r *Runtime) unwatch(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.watches[id]
	if w.waiters--; w.waiters == 0 {
		delete(r.watches, id)
	}
}

// settle leaves the exit status to those who wait, before the bundle is removed.
func (r *Runtime) settle(id string, e oci.Exit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watches[id]; w != nil && w.exit == nil {
		w.exit = &e
	}
}

// exitFile reads the monitor's report; without one the status is unknown and the time is now.
func exitFile(b bundle) oci.Exit {
	code, at, err := conmon.ReadExit(string(b))
	switch {
	case err != nil:
		return oci.Exit{Code: unknownCode, At: time.Now()}
	case code < 0:
		return oci.Exit{Code: unknownCode, At: at}
	}
	return oci.Exit{Code: code, At: at, Known: true}
}

func idOf(b bundle) string { return filepath.Base(string(b)) }
