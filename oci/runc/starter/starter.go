// Package starter carries the program that starts a created container by the FIFO on which its first process waits, in
// place of the runtime's `start` (see starter.c), and says when a container still waits.
//
// It knows FIFOs and processes, neither containers nor runtimes. The driver of OCI runtimes calls it.
package starter

import (
	"embed"
	"path/filepath"
	"strconv"

	"github.com/podd-project/podd/oci/program"
)

// files holds bin/starter.gz if it was built. bin always holds a README, so that podd builds without a C compiler.
//
//go:embed all:bin
var files embed.FS

// Install writes the program into dir and returns its absolute path; see program.Install.
func Install(dir string) (string, error) {
	return program.Install(files, filepath.Join(dir, "starter"), 0o500)
}

// Method is how a process that waits on a FIFO is released.
type Method string

const (
	// Read is for a process that writes when the FIFO is opened for reading, as runc's.
	Read Method = "read"
	// Write is for a process that has the FIFO open for reading and reads a byte, as crun's.
	Write Method = "write"
)

// Args are the program's arguments. It runs the command if it cannot release the process with this pid.
func Args(method Method, fifo string, pid int, command ...string) []string {
	return append([]string{string(method), fifo, strconv.Itoa(pid)}, command...)
}
