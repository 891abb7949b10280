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

// bundle is the directory of one container, <RunDir>/<id>. The shim has its own files in it (state.json, exit.json,
// log, address...), so podd's have other names.
type bundle struct{ driver.Bundle }

func (b bundle) record() string { return b.File(stdio.RecordFile) }
func (b bundle) exit() string   { return b.File("podd-exit.json") }

// oom marks that the shim has reported an out-of-memory kill.
func (b bundle) oom() string { return b.File(stdio.OOMMark) }

// unstarted marks that the container was killed before it was started: the shim will never report its exit.
func (b bundle) unstarted() string { return b.File("podd-unstarted") }

// log is the shim's own log.
func (b bundle) log() string { return b.File("log") }

// record is podd.json: the data with which a later daemon reaches and removes the container. It is written several
// times during creation.
type record struct {
	driver.Header
	// Owner is the container whose bundle the shim runs in: this one, or the pod's infra container.
	Owner string `json:"owner"`
	// Address and Protocol are the shim's socket and its version of the task API.
	Address  string `json:"address,omitempty"`
	Protocol int32  `json:"protocol,omitempty"`
	// Shim, Init and Stdio are processes. Init is the shim itself if the shim reports no process of the container, as
	// with a VM.
	Shim  process.Process `json:"shim"`
	Init  process.Process `json:"init"`
	Stdio process.Process `json:"stdio"`
	// Shared is true if Init is the process of the whole pod, as in a sandbox that runs all its containers in one
	// process.
	Shared bool `json:"shared,omitempty"`
	// Cgroup is the cgroupsPath of a container whose cgroups podd removes.
	Cgroup string `json:"cgroup,omitempty"`
}

// ownInit is the container's first process, none if the host shows no process of it alone.
func (rec record) ownInit() process.Process {
	if rec.Shared || rec.Init == rec.Shim {
		return process.Process{}
	}
	return rec.Init
}

// save writes the record.
func (b bundle) save(rec record) error {
	rec.Header = driver.NewHeader()
	return driver.WriteRecord(b.record(), rec)
}

// load reads the record. errdefs.ErrNotFound if no creation was started. Processes of another boot are left out: their
// pids are meaningless now.
func (b bundle) load() (record, error) {
	var rec record
	if err := driver.ReadRecord(b.record(), &rec); err != nil {
		return record{}, err
	}
	if err := rec.CheckVersion(); err != nil {
		return record{}, err
	}
	if err := driver.CheckID(rec.Owner); err != nil {
		return record{}, fmt.Errorf("container state: owner: %w", err)
	}
	if !rec.ThisBoot() {
		rec.Shim, rec.Init, rec.Stdio = process.Process{}, process.Process{}, process.Process{}
	}
	return rec, nil
}

// created reads the record of a completely created container.
func (b bundle) created() (record, error) {
	rec, err := b.load()
	if err == nil && rec.Init == (process.Process{}) && rec.ThisBoot() {
		err = fmt.Errorf("container %s: %w", b.ID(), errdefs.ErrNotFound)
	}
	return rec, err
}

// open returns the bundle and the record of a completely created container.
func (r *Runtime) open(id string) (bundle, record, error) {
	b, err := r.bundle(id)
	if err != nil {
		return b, record{}, err
	}
	rec, err := b.created()
	return b, rec, err
}

// exitRecord is podd-exit.json: how the container ended, for the time after the shim has exited.
type exitRecord struct {
	Code int32     `json:"code"`
	At   time.Time `json:"at"`
	OOM  bool      `json:"oom,omitempty"`
	// OOMKills is a number of processes.
	OOMKills uint64 `json:"oomKills,omitempty"`
	// ForksRefused is a number of forks.
	ForksRefused uint64 `json:"forksRefused,omitempty"`
	Known        bool   `json:"known"`
}

func (b bundle) saveExit(e oci.Exit) error { return driver.WriteRecord(b.exit(), exitRecord(e)) }

// loadExit returns false if no exit was recorded.
func (b bundle) loadExit() (oci.Exit, bool) {
	var e exitRecord
	if err := driver.ReadRecord(b.exit(), &e); err != nil {
		return oci.Exit{}, false
	}
	return oci.Exit(e), true
}
