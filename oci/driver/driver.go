// Package driver has the parts of the drivers of containers (oci/runc, oci/shim): running programs with a
// deadline, bundles and their records, the waiters of one container, output and terminals of clients, errors of
// runtimes, and probes of the features of a runtime and the kernel.
//
// It holds no container and makes no decision about one. Only drivers import it.
package driver

import (
	"syscall"
	"time"
)

const (
	// UnknownCode is the exit code of a container or command whose exit status is unknown.
	UnknownCode = 255
	// KilledCode is the exit code after SIGKILL.
	KilledCode = 128 + int32(syscall.SIGKILL)
	// FallbackOCIVersion is the OCI version of a runtime that does not report one.
	FallbackOCIVersion = "1.0.2"
)

const (
	// DefaultCreateTimeout bounds one Create unless the handler's configuration does.
	DefaultCreateTimeout = time.Minute
	// ReapTimeout bounds the killing of processes that an exited container left behind.
	ReapTimeout = 10 * time.Second
	// UndoTimeout bounds the killing of processes that a failed call started.
	UndoTimeout = 10 * time.Second
	// ExitTime is how long a container may take to exit after its runtime has missed a part of it, such as a namespace.
	ExitTime = 200 * time.Millisecond
	// LastNamedSignal is the last one that every runtime knows. gVisor's knows no real-time signals: a container that is
	// stopped by one gets SIGTERM.
	LastNamedSignal = syscall.SIGSYS
	// DrainTime is how long output is read after the command has exited: its own output is in the pipe already, but a
	// child that it left behind may hold the pipe open forever. For the client of a session it begins with each output.
	DrainTime = time.Second
	// clientTime is how long a client may take for one write of output after the process has exited.
	clientTime = 30 * time.Second
)

// defaultExecLimit is the cap on each output of ExecSync when the request sets none, in bytes.
const defaultExecLimit = 16 << 20
