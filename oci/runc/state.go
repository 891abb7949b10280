package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/process"
)

// State returns the container's status, from the kernel and the files in the bundle. The runtime is run only if those
// are not sufficient. An unknown container is Absent, which is not an error.
func (r *Runtime) State(ctx context.Context, id string) (oci.State, error) {
	b, rec, err := r.open(id)
	if errdefs.IsNotFound(err) {
		return r.queryState(ctx, id)
	}
	if err != nil {
		return oci.State{}, err
	}
	if rec.pending() {
		if rec, err = r.completeRestore(ctx, b, rec); err != nil {
			return oci.State{}, err
		}
		if rec.pending() && !b.restoreBegan() {
			return oci.State{Status: oci.Created}, nil
		}
	}
	s := oci.State{Process: rec.Init, Status: oci.Stopped}
	if !rec.Init.Alive() {
		return s, nil
	}
	if s.Status, err = r.statusOf(ctx, b, rec); err != nil {
		return oci.State{}, err
	}
	s.NoMonitor = !rec.Monitor.Alive()
	return s, nil
}

// statusOf returns the status of a container whose first process is alive.
func (r *Runtime) statusOf(ctx context.Context, b bundle, rec record) (oci.Status, error) {
	if b.frozen(rec) {
		return oci.Paused, nil
	}
	if _, err := os.Stat(b.started()); err == nil {
		return oci.Running, nil
	}
	// No mark: not started, or the daemon died before it wrote the mark.
	if waits, err := r.waits(b, rec); err == nil && waits {
		return oci.Created, nil
	}
	asked, err := r.queryState(ctx, b.ID())
	if err != nil {
		return "", err
	}
	if asked.Status == oci.Absent {
		// The runtime has lost its state. The process is alive, and no start was recorded.
		return oci.Created, nil
	}
	return asked.Status, nil
}

// queryState runs `<runtime> state`.
func (r *Runtime) queryState(ctx context.Context, id string) (oci.State, error) {
	out, err := r.runRuntime(ctx, nil, "state", id)
	if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return oci.State{Status: oci.Absent}, nil
	}
	if err != nil {
		return oci.State{}, fmt.Errorf("query container state: %w", err)
	}
	var said struct {
		Status oci.Status `json:"status"`
		Pid    int        `json:"pid"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return oci.State{}, fmt.Errorf("parse container state: %w", err)
	}
	s := oci.State{Status: said.Status}
	if said.Pid > 0 && said.Status != oci.Stopped {
		// If it has exited since, the pid is of no use either.
		s.Process, _ = process.Identify(said.Pid)
	}
	return s, nil
}

// readExit returns the exit status of a container whose monitor and first process are gone.
func (r *Runtime) readExit(b bundle, rec record) oci.Exit {
	e := readExitFile(b)
	r.describeLimits(b, rec, &e)
	return e
}

// HasRecord reports whether the container was created completely by a handler of this type.
func (r *Runtime) HasRecord(id string) bool {
	_, _, err := r.open(id)
	return err == nil
}
