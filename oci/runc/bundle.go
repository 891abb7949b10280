package runc

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
)

// bundle is the directory of one container, <RunDir>/<id>.
type bundle struct{ driver.Bundle }

func (b bundle) record() string { return b.File("state.json") }

// started is a mark: the runtime's start verb has succeeded.
func (b bundle) started() string { return b.File("started") }

// record is what a later daemon needs to watch and end a container: state.json.
type record struct {
	Version int `json:"v"`
	// Boot is the kernel's boot id: after another boot no process of the record exists.
	Boot string `json:"boot"`
	// Init is the container's first process, Monitor its conmon.
	Init    process.Process `json:"init"`
	Monitor process.Process `json:"monitor"`
	// Sandbox is the container in whose sandbox, under a kernel of its own, this one runs, which may be itself;
	// empty for containers on the host's kernel. See guest.
	Sandbox string `json:"sandbox,omitempty"`
	// Cgroups are the container's own cgroup directories, by controller ("" for the unified hierarchy).
	Cgroups cgroups.Dirs `json:"cgroups,omitempty"`
	// PodOOMs is for the time when Cgroups are gone; only with systemd, which removes them.
	PodOOMs cgroups.OOMBaseline `json:"podOOMs,omitzero"`
}

const recordVersion = 1

// bundle names the container's directory, or refuses the id.
func (r *Runtime) bundle(id string) (bundle, error) {
	b, err := driver.NewBundle(r.cfg.RunDir, id)
	return bundle{b}, err
}

// save writes the record.
func (b bundle) save(rec record) error {
	rec.Version, rec.Boot = recordVersion, process.BootID()
	return driver.WriteRecord(b.record(), rec)
}

// load reads the record; errdefs.ErrNotFound when the container was never created completely. The processes
// of another boot are left out: their pids mean nothing now.
func (b bundle) load() (record, error) {
	var rec record
	if err := driver.ReadRecord(b.record(), &rec); err != nil {
		return record{}, err
	}
	if rec.Version > recordVersion {
		return record{}, fmt.Errorf("container state of version %d: %w", rec.Version, errdefs.ErrFailedPrecondition)
	}
	if rec.Boot != process.BootID() {
		rec.Init, rec.Monitor = process.Process{}, process.Process{}
	}
	return rec, nil
}
