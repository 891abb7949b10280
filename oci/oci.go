// Package oci is the contract between the sandbox engine and the drivers that run containers: requests, answers and
// errors. It does no work. Package oci/runc drives OCI runtimes under conmon, package oci/shim drives containerd shims.
package oci

import (
	"context"
	"fmt"
	"syscall"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/process"
)

// Runtime is one runtime handler. All methods but Create, Start, ExecSync and Exec are idempotent, need nothing but the
// id, and work for containers that an earlier daemon created.
type Runtime interface {
	// Ready returns why the handler cannot be used, or nil.
	Ready() error
	Features() Features
	// Create writes the bundle and creates the container, which then waits for Start. The caller must call Delete after
	// any error but errdefs.ErrAlreadyExists.
	Create(ctx context.Context, r CreateRequest) (Process, error)
	Start(ctx context.Context, id string) error
	// Signal sends to the container's first process. A container that is gone is not an error.
	Signal(ctx context.Context, id string, sig syscall.Signal) error
	// Delete kills the remaining processes of the container and removes the runtime's state, the monitor and the
	// bundle.
	Delete(ctx context.Context, id string) error
	// State returns Absent for an unknown container.
	State(ctx context.Context, id string) (State, error)
	// Wait returns when the container has exited and its output is written. It returns ErrNoMonitor once if the monitor
	// dies before; the caller waits again.
	Wait(ctx context.Context, id string) (Exit, error)
	ExecSync(ctx context.Context, r ExecRequest) (ExecResult, error)
	// Exec connects a client to a command in the container and returns the command's exit code.
	Exec(ctx context.Context, id string, p *specs.Process, s Streams) (int32, error)
	// Attach connects a client to the container's first process, until that or ctx ends.
	Attach(ctx context.Context, id string, s Streams) error
	// Update changes resource limits. Absent ones stay as they are. ErrNoEffect says that none of them will hold.
	Update(ctx context.Context, id string, r *specs.LinuxResources) error
	// ReopenLog continues the log in a new file after the kubelet has moved the old one away.
	ReopenLog(ctx context.Context, id string) error
}

// Checkpointer is a Runtime that can save a pod whose containers share a sandbox.
type Checkpointer interface {
	// Checkpoint saves the containers of the sandbox of container id in the empty directory dir, all at the same
	// moment. They are paused until then, and run again when it returns, whatever it returns. It does not return
	// earlier when ctx ends, because a sandbox that has begun to save cannot be stopped: it continues, and then runs,
	// also when the caller or the program that has asked for it is killed.
	Checkpoint(ctx context.Context, id, dir string) error
}

// Resizer is a Runtime whose pods have machines, which have to be as large as their pods' limits.
type Resizer interface {
	// Resize lets the machine of the pod whose infra container is id hold a pod with these limits, those of all its
	// containers together. A machine that cannot is errdefs.ErrFailedPrecondition.
	Resize(ctx context.Context, id string, limits *specs.LinuxResources) error
}

// Dumper is a Runtime that can save containers which do not share a sandbox.
type Dumper interface {
	// Dump freezes the containers, saves the processes of each, calls frozen, and thaws them. The saved state is the
	// state of all at one moment, when the last one was frozen. They run again when Dump returns, whatever it returns,
	// and soon after podd is killed or the deadline of ctx, which must have one. The error is errdefs.ErrNotImplemented
	// if the runtime cannot, errdefs.ErrFailedPrecondition if one of these containers cannot be saved.
	Dump(ctx context.Context, containers []Dumped, frozen func(context.Context) error) error
	// Obstacles returns in words why Dump of these containers, which are of a pod, would fail, as far as that can be
	// seen without freezing them before ctx ends.
	Obstacles(ctx context.Context, ids []string) []string
	// Thaw has the container run again after a podd was killed in Dump. A container that is gone is not an error.
	Thaw(ctx context.Context, id string) error
}

// Dumped is a container to save, and the empty directory for its dump.
type Dumped struct {
	ID, Dir string
	// Room is the number of bytes that fit where the caller puts the dumps of all containers; 0 is unknown.
	Room int64
}

// A dump: a directory with the images of CRIU, its log and its statistics.
const (
	DumpImages = "checkpoint"
	DumpLog    = "dump.log"
	DumpStats  = "stats-dump"
)

// CreateRequest describes a container to create.
type CreateRequest struct {
	ID string
	// PodID is the id of the container's pod. That of the pod's infra container is ID itself.
	PodID string
	// Name is the container's name in its pod, for tools that read the monitor's command line.
	Name string
	// Spec becomes config.json.
	Spec *specs.Spec
	// Log is the CRI log; the zero value discards output.
	Log logfile.Log
	// Terminal, Stdin and StdinOnce are the CRI fields tty, stdin and stdin_once.
	Terminal, Stdin, StdinOnce bool
	// Image, if set, is a directory that Checkpoint has filled, or the directory DumpImages of one that Dump has. Start
	// then continues the container as it was saved, instead of running its command; the containers of a sandbox
	// continue together, when the last one is started. The directory must not change before that.
	//
	// Of what Dump has saved there is no process before Start: Create then returns none, and State is Created. Images
	// that give a process more than Spec does are errdefs.ErrPermissionDenied.
	Image string
}

// Process identifies a process by pid and start time.
type Process = process.Process

// Status is the status of a container in the OCI runtime specification.
type Status string

// The statuses of a container. Absent, which is not in the specification, is that of a container unknown to the
// runtime.
const (
	Absent  Status = "absent"
	Created Status = "created"
	Running Status = "running"
	Paused  Status = "paused"
	Stopped Status = "stopped"
)

// State is the status of a container and its first process.
type State struct {
	Status  Status
	Process Process
	// NoMonitor is true if the monitor of a container that runs has died, see ErrNoMonitor.
	NoMonitor bool
}

// Exit is how a container ended.
type Exit struct {
	// Code is the exit status, 128+n after signal n, 255 if unknown.
	Code int32
	// At is the time of the exit, or the best estimate.
	At time.Time
	// OOM is true if the kernel killed a process of the container for lack of memory, which may have ended it: since the
	// first signal to the container, if there was one, and not a command that was run in it.
	OOM bool
	// OOMKills is the number of all such kills.
	OOMKills uint64
	// ForksRefused is how often a limit of processes refused the container a process or thread. It is 0 if the cgroup was
	// gone before it was read, as systemd's often are.
	ForksRefused uint64
	// Known is false if no exit status was recorded.
	Known bool
}

// ReachedBefore says which limits the container had reached that did not end it, "" if none. That of processes is a
// reason to fail, but not of an exit by SIGKILL or SIGTERM.
func (x Exit) ReachedBefore() string {
	killed := x.Code == 128+int32(syscall.SIGKILL) || x.Code == 128+int32(syscall.SIGTERM)
	switch {
	case x.OOMKills > 0:
		return fmt.Sprintf("the kernel had killed %d of its processes for lack of memory before", x.OOMKills)
	case x.ForksRefused > 0 && x.Code != 0 && !killed:
		return fmt.Sprintf("the kernel had refused it a process or thread before (count: %d): a limit of processes was "+
			"reached, such as runtime.pids_limit or the kubelet's podPidsLimit", x.ForksRefused)
	}
	return ""
}

// ExecRequest is a command to run in a running container, whose output is collected (CRI ExecSync).
type ExecRequest struct {
	ID      string
	Process *specs.Process
	// Timeout kills the command's whole process tree; 0 means none.
	Timeout time.Duration
	// Limit caps stdout and stderr, in bytes each; the rest is read and dropped.
	Limit int64
	// Grow admits n more bytes of output in memory, beyond the first FreeOutput bytes of each stream. After an error
	// the rest of a stream is dropped. Nil admits all up to Limit.
	Grow func(n int64) error
}

// FreeOutput is how much of each stream an ExecSync keeps without asking ExecRequest.Grow. The kubelet uses 10 KiB of a
// probe's output.
const FreeOutput = 64 << 10

// ExecResult is the output and the exit code of a command.
type ExecResult struct {
	Stdout, Stderr []byte
	Code           int32
	// Short is true if less than Limit was kept because ExecRequest.Grow returned an error.
	Short bool
}

// Features are those of a handler.
type Features struct {
	// Version is the first line of `<runtime> --version`.
	Version string
	// OCIVersion is the newest version of the runtime specification that config.json may have, "1.0.2" if the runtime
	// does not report one.
	OCIVersion string
	// RecursiveReadOnly is true if the mount option "rro" works with this kernel and runtime.
	RecursiveReadOnly bool
	// OwnKernel is true if the containers of a pod share a kernel that is not the host's (gVisor, a VM): their
	// processes and localhost cannot be reached from the host, and an infra container holds the sandbox.
	OwnKernel bool
	// HostNetwork is true if that kernel passes network calls to the host's, so that a pod may use the node's network.
	HostNetwork bool
	// Checkpoints are the kinds of checkpoints that the handler can make.
	Checkpoints Checkpoints
	// UserNamespaces is true if containers can run in a user namespace with idmapped mounts.
	UserNamespaces bool
	// MountOptions are the mount options that the runtime knows; nil if it does not report them.
	MountOptions []string
	// Warning describes a limitation of the handler as it is configured, for the administrator; "" if there is none.
	Warning string
}

// Checkpoints are the kinds of checkpoints that a handler could make when it was last probed.
type Checkpoints struct {
	// Pods is true if the handler knows CreateRequest.Image and its Checkpoint works, or its Dump if pods do not share
	// a kernel of their own. Containers is true if it can checkpoint a single container.
	Pods, Containers bool
	// NoPods and NoContainers say why not; "" if it can, or if it never can.
	NoPods, NoContainers string `json:",omitempty"`
}

// NetworkOption is gVisor's option for the network stack of a sandbox. HostNetworkOption is its value for the host's.
const (
	NetworkOption     = "network"
	HostNetworkOption = "host"
)
