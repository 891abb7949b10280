package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
)

// State tells what the container is doing now. It is asked of the kernel and of the files in the bundle; the
// runtime itself is run only when those do not tell. A container that nobody knows is Absent, not an error.
func (r *Runtime) State(ctx context.Context, id string) (State, error) {
	b, err := r.bundle(id)
	if err != nil {
		return State{}, err
	}
	rec, err := b.load()
	if errdefs.IsNotFound(err) {
		return r.askState(ctx, id)
	}
	if err != nil {
		return State{}, err
	}
	s := State{Process: rec.Init, Status: Stopped}
	if !rec.Init.alive() {
		return s, nil
	}
	if s.Status, err = r.lively(ctx, b, rec); err != nil {
		return State{}, err
	}
	return s, nil
}

// lively is the status of a container whose first process lives.
func (r *Runtime) lively(ctx context.Context, b bundle, rec record) (Status, error) {
	if b.frozen(rec) {
		return Paused, nil
	}
	if _, err := os.Stat(b.started()); err == nil {
		return Running, nil
	}
	// No mark: not started, or the daemon died before it could be set.
	asked, err := r.askState(ctx, idOf(b))
	if err != nil {
		return "", err
	}
	if asked.Status == Absent {
		// The runtime has lost its state. The process lives, and nobody saw it started.
		return Created, nil
	}
	return asked.Status, nil
}

// askState runs `<runtime> state`.
func (r *Runtime) askState(ctx context.Context, id string) (State, error) {
	out, err := r.run(ctx, nil, "state", id)
	if errdefs.IsNotFound(err) || errors.Is(err, fs.ErrNotExist) {
		return State{Status: Absent}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("ask container state: %w", err)
	}
	var said struct {
		Status Status `json:"status"`
		Pid    int    `json:"pid"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		return State{}, fmt.Errorf("parse container state: %w", err)
	}
	s := State{Status: said.Status}
	if said.Pid > 0 && said.Status != Stopped {
		// Gone between the two questions: then the pid is of no use either.
		s.Process, _ = identify(said.Pid)
	}
	return s, nil
}

// ended is the exit status of a container whose monitor and first process are gone.
func ended(b bundle, rec record) Exit {
	e := exitFile(b)
	e.OOM = oomKilled(b, rec)
	return e
}

// Made tells whether there is a container of that id whose creation was completed, by whichever handler of this kind.
func (r *Runtime) Made(id string) bool {
	b, err := r.bundle(id)
	if err != nil {
		return false
	}
	_, err = b.load()
	return err == nil
}
