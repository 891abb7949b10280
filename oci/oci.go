// Package oci is the contract between the sandbox engine and the handlers that run containers: requests, answers and
// errors. It does no work; package oci/runc drives OCI runtimes under conmon, package oci/shim containerd's shims.
package oci

import (
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/process"
)

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

// Process identifies a process beyond the reuse of its pid.
type Process = process.Process

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

// NetworkOption is gVisor's option for who handles the network calls of containers, HostNetworkOption its value for the
// host's kernel, in place of the sandbox's own network stack.
const (
	NetworkOption     = "network"
	HostNetworkOption = "host"
)
