package runc

import (
	"encoding/json"
	"os"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/runc/starter"
)

// bundle is the directory of one container, <RunDir>/<id>.
type bundle struct{ driver.Bundle }

func (b bundle) record() string { return b.File("state.json") }

// started marks that the runtime's start command has succeeded.
func (b bundle) started() string { return b.File("started") }

// spec reads config.json, to which wrappers of runtimes may have added.
func (b bundle) spec() (s specs.Spec, err error) {
	data, err := os.ReadFile(b.Config())
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(data, &s)
}

// record is state.json: the data with which a later daemon watches and removes the container.
type record struct {
	driver.Header
	// Init is the container's first process, Monitor its conmon.
	Init    process.Process `json:"init"`
	Monitor process.Process `json:"monitor"`
	// Log is the container's log, zero if there is none.
	Log logfile.Log `json:"log,omitzero"`
	// Sandbox is the container whose sandbox, with its own kernel, this one runs in. It may be itself, and is empty for
	// containers on the host's kernel. See subcontainer.go.
	Sandbox string `json:"sandbox,omitempty"`
	// Image is oci.CreateRequest.Image.
	Image string `json:"image,omitempty"`
	// Start is how the starter releases Init, if that is all that the runtime's start would do. See start_fifo.go.
	Start starter.Method `json:"start,omitempty"`
	// Restore is set for a container that CRIU restores when it is started. Init and Monitor are zero until then.
	Restore *restore `json:"restore,omitempty"`
	// Cgroups are the container's own cgroup directories, by controller ("" for cgroup v2).
	Cgroups cgroups.Dirs `json:"cgroups,omitempty"`
	// Cgroup is the container's cgroupsPath, if podd removes all that is left of it when it is dead, without the
	// runtime's delete. It is empty if the runtime may have made more than Cgroups. See delete_direct.go.
	Cgroup string `json:"cgroup,omitempty"`
	// PodOOMs is used when Cgroups are gone. It is set with systemd only, which removes them.
	PodOOMs cgroups.OOMBaseline `json:"podOOMs,omitzero"`
}

// bundle returns the container's bundle. The error is that of driver.NewBundle.
func (r *Runtime) bundle(id string) (bundle, error) {
	b, err := driver.NewBundle(r.cfg.RunDir, id)
	return bundle{b}, err
}

// open returns the container's bundle and its record. The errors are those of bundle and load.
func (r *Runtime) open(id string) (bundle, record, error) {
	b, err := r.bundle(id)
	if err != nil {
		return b, record{}, err
	}
	rec, err := b.load()
	return b, rec, err
}

// save writes the record.
func (b bundle) save(rec record) error {
	rec.Header = driver.NewHeader()
	return driver.WriteRecord(b.record(), rec)
}

// load reads the record. errdefs.ErrNotFound if the container was never created completely. Processes of another boot
// are left out: their pids are meaningless now.
func (b bundle) load() (record, error) {
	var rec record
	if err := driver.ReadRecord(b.record(), &rec); err != nil {
		return record{}, err
	}
	if err := rec.CheckVersion(); err != nil {
		return record{}, err
	}
	if !rec.ThisBoot() {
		rec.Init, rec.Monitor = process.Process{}, process.Process{}
	}
	return rec, nil
}
