// Package env has the names by which the host and the agent agree on the guest's devices and paths.
package env

// Environment variables of process 1, set on the kernel's command line.
const (
	// Port is the serial device that leads to the host. Unset means the virtio port named VirtioPort.
	Port = "PODD_PORT"
	// Share is <file system type>:<source> of the directory that the host shares, mounted at SharedDir.
	Share = "PODD_SHARE"
)

const (
	// VirtioPort is the name of the virtio port that leads to the host.
	VirtioPort = "podd.agent"
	// SharedDir has a directory for each container, which the host makes: its bundle.
	SharedDir = "/shared"
	// PipeDir holds the named pipes of the containers' streams.
	PipeDir = "/run/io"
	// Runtime is the path of the OCI runtime, RuntimeRoot of its state.
	Runtime, RuntimeRoot = "/bin/runtime", "/run/runtime"
	// ModuleDir holds kernel modules, which are loaded in the order of their names.
	ModuleDir = "/lib/modules"
)
