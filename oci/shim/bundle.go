package shim

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim/stdio"
)

// bundle is the directory of one container, <RunDir>/<id>. The shim has files of its own in it (state.json,
// exit.json, log, address...): ours are named otherwise.
type bundle struct{ driver.Bundle }

func (b bundle) record() string { return b.File(stdio.RecordFile) }
func (b bundle) exit() string   { return b.File("podd-exit.json") }

// oom is a mark: the shim has reported that the kernel killed for memory.
func (b bundle) oom() string { return b.File(stdio.OOMMark) }

// unstarted is a mark: the container was killed before it was started, and the shim will tell its end to nobody.
func (b bundle) unstarted() string { return b.File("podd-unstarted") }

// log is what the shim itself logs.
func (b bundle) log() string { return b.File("log") }

// events is the socket to which the shim that works here posts events: the keeper's.
func (b bundle) events() string { return b.File(stdio.Events) }

// record is what a later daemon needs to reach and end a container: podd.json. It grows while the container is made.
type record struct {
	Version int `json:"v"`
	// Boot is the kernel's boot id: after another boot no process of the record exists.
	Boot string `json:"boot"`
	// Owner is the container whose bundle the shim works in: this one, or the pod's infra container.
	Owner string `json:"owner"`
	// Address and Protocol say where the shim listens and which version of the task API it speaks.
	Address  string `json:"address,omitempty"`
	Protocol int32  `json:"protocol,omitempty"`
	// Shim, Init and Keeper are processes. Init is the shim itself where it names none that is the container's, as
	// with a VM.
	Shim  process.Process `json:"shim"`
	Init  process.Process `json:"init"`
	Stdio process.Process `json:"keeper"`
	// Shared is true when Init is the whole pod's, as where its containers run in one process, the sandbox.
	Shared bool `json:"shared,omitempty"`
	// Cgroup is the cgroupsPath of a container whose groups are ours to clean up.
	Cgroup string `json:"cgroup,omitempty"`
}

const recordVersion = 1

// own is the container's first process, none if the host does not see one of it alone.
func (rec record) ownInit() process.Process {
	if rec.Shared || rec.Init == rec.Shim {
		return process.Process{}
	}
	return rec.Init
}

// save writes the record.
func (b bundle) save(rec record) error {
	rec.Version, rec.Boot = recordVersion, process.BootID()
	return driver.WriteRecord(b.record(), rec)
}

// load reads the record; errdefs.ErrNotFound when the container was never begun. The processes of another boot are
// left out: their pids mean nothing now.
func (b bundle) load() (record, error) {
	var rec record
	if err := driver.ReadRecord(b.record(), &rec); err != nil {
		return record{}, err
	}
	if rec.Version > recordVersion {
		return record{}, fmt.Errorf("container state of version %d: %w", rec.Version, errdefs.ErrFailedPrecondition)
	}
	if err := driver.CheckID(rec.Owner); err != nil {
		return record{}, fmt.Errorf("container state: owner: %w", err)
	}
	if rec.Boot != process.BootID() {
		rec.Shim, rec.Init, rec.Stdio = process.Process{}, process.Process{}, process.Process{}
	}
	return rec, nil
}

// created reads the record of a container that was created completely.
func (b bundle) created() (record, error) {
	rec, err := b.load()
	if err == nil && rec.Init == (process.Process{}) && rec.Boot == process.BootID() {
		err = fmt.Errorf("container %s: %w", b.ID(), errdefs.ErrNotFound)
	}
	return rec, err
}

// ended is podd-exit.json: how the container ended, once that is known, for the time when the shim is gone.
type exitRecord struct {
	Code  int32     `json:"code"`
	At    time.Time `json:"at"`
	OOM   bool      `json:"oom,omitempty"`
	Known bool      `json:"known"`
}

func (b bundle) saveExit(e oci.Exit) error { return driver.WriteRecord(b.exit(), exitRecord(e)) }

// loadExit is false when the end of the container was not observed yet.
func (b bundle) loadExit() (oci.Exit, bool) {
	var e exitRecord
	if err := driver.ReadRecord(b.exit(), &e); err != nil {
		return oci.Exit{}, false
	}
	return oci.Exit(e), true
}
