// Package oci drives an OCI runtime (runc, crun, ...) by container id, with conmon as the monitor of
// each container.
//
// It owns <run>/containers/<id>/ (bundle, pid files, exit file, attach socket) and the runtime's state
// directory. It knows nothing of pods, images, networks or CRI: it is given a bundle and an id. The sandbox
// engine is its only caller. Every verb but Create, Start and Exec is idempotent and can be repeated after
// a crash; Wait works for a container that an earlier daemon started.
package oci

import (
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// HandlerConfig configures one runtime handler of type "oci".
type HandlerConfig struct {
	// Name is the RuntimeClass handler name.
	Name string
	// Path of the runtime binary, or its bare name, looked up in SearchPath.
	Path string
	// SearchPath lists the directories that are searched for bare names of the runtime and of conmon.
	SearchPath []string
	// Root is the runtime's own state directory (--root).
	Root string
	// RunDir holds one directory per container: <RunDir>/<id>.
	RunDir string
	// Conmon is the monitor's binary, path or bare name.
	Conmon string
	// SystemdCgroup chooses the systemd cgroup driver.
	SystemdCgroup bool
	// Options are further global flags of the runtime, by name: {"platform": "systrap"} is --platform=systrap.
	Options map[string]string
	// StandIn is the path of podd's stand-in program (see oci/standin), which runtimes with a kernel of their own
	// need; empty: they cannot be used.
	StandIn string
	// CreateTimeout bounds one Create; 0 means one minute.
	CreateTimeout time.Duration
}

// CreateRequest describes the container whose bundle is written and started up to the "created" state.
type CreateRequest struct {
	ID string
	// PodID is the pod sandbox that the container belongs to; for the pod's infra container it is ID itself.
	PodID string
	// Spec becomes config.json.
	Spec *specs.Spec
	// LogPath is the CRI log file; empty discards output.
	LogPath string
	// Terminal, Stdin and StdinOnce are the CRI fields tty, stdin and stdin_once.
	Terminal, Stdin, StdinOnce bool
}

// Process identifies a process beyond the reuse of its pid: by pid and start time (field 22 of
// /proc/<pid>/stat, in clock ticks since boot).
type Process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Status is what an OCI runtime says of a container.
type Status string

// The states of the OCI runtime specification, and Absent for a container the runtime does not know.
const (
	Absent   Status = "absent"
	Creating Status = "creating"
	Created  Status = "created"
	Running  Status = "running"
	Paused   Status = "paused"
	Stopped  Status = "stopped"
)

// State is the answer of State.
type State struct {
	Status  Status
	Process Process
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit status, 128+n after signal n, 255 when nobody could tell.
	Code int32
	// At is when it ended, as well as is known.
	At time.Time
	// OOM is true when the kernel killed a process of the container for memory.
	OOM bool
	// Known is false when neither the monitor nor the kernel left an exit status.
	Known bool
}

// ExecRequest runs one command in a running container and collects its output (CRI ExecSync).
type ExecRequest struct {
	ID      string
	Process *specs.Process
	// Timeout kills the command's whole process tree; 0 means none.
	Timeout time.Duration
	// Limit caps stdout and stderr, in bytes each; the rest is read and dropped.
	Limit int64
}

// ExecResult is what the command printed and how it ended.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int32
}

// Features is what the handler can do, by asking the runtime (`<runtime> features`).
type Features struct {
	// Version is the first line of `<runtime> --version`.
	Version string
	// OCIVersion is the newest runtime-spec version to write into config.json: the runtime's own maximum,
	// "1.0.2" when it cannot say.
	OCIVersion string
	// RecursiveReadOnly is true when the "rro" mount option works, on this kernel with this runtime.
	RecursiveReadOnly bool
	// OwnKernel is true when the containers of a pod share a kernel that is not the host's (gVisor, a VM): its localhost
	// and its processes cannot be reached from the host, and the pod needs an infra container to hold the sandbox.
	OwnKernel bool
	// HostNetwork is true when that kernel hands network calls to the host's, so that a pod may use the node's network.
	HostNetwork bool
	// UserNamespaces is true when containers can be run in a user namespace with idmapped mounts.
	UserNamespaces bool
	// MountOptions are the mount options that the runtime knows; nil when it cannot say.
	MountOptions []string
	// Advisories are security advisories whose fix is newer than the runtime's version. A distribution may have the
	// fix under an old version.
	Advisories []string
}
