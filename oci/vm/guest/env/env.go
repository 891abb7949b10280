// Package env has the names by which the host and the agent agree on the guest's devices and paths.
package env

// Port is the environment variable of process 1, set on the kernel's command line, with the serial device that leads to
// the host. Unset means the virtio port named VirtioPort.
const Port = "PODD_PORT"

// Files is the variable with the number of files, about, that the guest's kernel should know at most: the host's file
// server has each of them open.
const Files = "PODD_FILES"

const (
	// VirtioPort is the name of the virtio port that leads to the host.
	VirtioPort = "podd.agent"
	// ShareTag is the name by which virtiofs finds the directory that the host shares, mounted at SharedDir.
	ShareTag = "podd"
	// SharedDir has a directory for each container, which the host makes: its bundle.
	SharedDir = "/shared"
	// SharesDir has the files of the host that containers have.
	SharesDir = SharedDir + "/.shares"
	// PipeDir holds the named pipes of the containers' streams.
	PipeDir = "/run/io"
	// Runtime is the path of the OCI runtime, RuntimeRoot of its state.
	Runtime, RuntimeRoot = "/bin/runtime", "/run/runtime"
	// ModuleDir holds kernel modules, which are loaded in the order of their names.
	ModuleDir = "/lib/modules"
)
