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

// State tells what the container is doing now. It is asked of the kernel and of the files in the bundle; the
// runtime itself is run only when those do not tell. A container that nobody knows is Absent, not an error.
func (r *Runtime) State(ctx context.Context, id string) (oci.State, error) {
	b, err := r.bundle(id)
	if err != nil {
		return oci.State{}, err
	}
	rec, err := b.load()
	if errdefs.IsNotFound(err) {
		return r.queryState(ctx, id)
	}
	if err != nil {
		return oci.State{}, err
	}
	s := oci.State{Process: rec.Init, Status: oci.Stopped}
	if !rec.Init.Alive() {
		return s, nil
	}
	if s.Status, err = r.statusOf(ctx, b, rec); err != nil {
		return oci.State{}, err
	}
	return s, nil
}

// lively is the status of a container whose first process lives.
func (r *Runtime) statusOf(ctx context.Context, b bundle, rec record) (oci.Status, error) {
	if b.frozen(rec) {
		return oci.Paused, nil
	}
	if _, err := os.Stat(b.started()); err == nil {
		return oci.Running, nil
	}
	// No mark: not started, or the daemon died before it could be set.
	asked, err := r.queryState(ctx, b.ID())
	if err != nil {
		return "", err
	}
	if asked.Status == oci.Absent {
		// The runtime has lost its state. The process lives, and nobody saw it started.
		return oci.Created, nil
	}
	return asked.Status, nil
}

// askState runs `<runtime> state`.
func (r *Runtime) queryState(ctx context.Context, id string) (oci.State, error) {
	out, err := r.runRuntime(ctx, nil, "state", id)
	if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return oci.State{Status: oci.Absent}, nil
	}
	if err != nil {
		return oci.State{}, fmt.Errorf("ask container state: %w", err)
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
		// Gone between the two questions: then the pid is of no use either.
		s.Process, _ = process.Identify(said.Pid)
	}
	return s, nil
}

// ended is the exit status of a container whose monitor and first process are gone.
func readExit(b bundle, rec record) oci.Exit {
	e := readExitFile(b)
	e.OOM = oomKilled(b, rec)
	return e
}

// Made tells whether there is a container of that id whose creation was completed, by whichever handler of this kind.
func (r *Runtime) HasRecord(id string) bool {
	b, err := r.bundle(id)
	if err != nil {
		return false
	}
	_, err = b.load()
	return err == nil
}
