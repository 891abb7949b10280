// Package conmon starts conmon, the monitor of one container or of one exec session, and talks to it.
//
// conmon (2.1.6 or later) is a small C program that calls the OCI runtime, is the parent of the container's first
// process, holds its output (the CRI log file, the attach socket), and writes its exit status to a file. It forks into
// a new session, so containers and their logs outlive the daemon.
//
// Its files are in the bundle: conmon.pid, pidfile, exit, oom, attach, ctl, winsz. The package knows a container by
// its bundle's path only, keeps nothing in memory and never kills. Only package runc and, for attach, package shim
// call it.
package conmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
)

// MinVersion is the oldest conmon that has all flags used here (Debian 12 has it).
const MinVersion = "2.1.6"

// Runtime is how the monitor calls the OCI runtime.
type Runtime struct {
	// Path of the binary, absolute.
	Path string
	// Args are the global flags, before the verb.
	Args []string
}

// Container describes a container to its monitor.
type Container struct {
	// Conmon is the path of conmon.
	Conmon string
	// Env is the environment of conmon and of the runtime.
	Env     []string
	Runtime Runtime
	ID      string
	// Name is the container's name, which tools read from conmon's command line (Inspektor Gadget); conmon itself uses
	// it in no log that podd asks for.
	Name string
	// Bundle is the container's directory, with config.json; the monitor's files go there too.
	Bundle string
	// Log is the CRI log, opened by the caller; nil discards the output.
	Log *os.File
	// Terminal, Stdin and StdinOnce are the CRI fields of the same names.
	Terminal, Stdin, StdinOnce bool
	// Restore, if set, is the directory of images from which the runtime restores the container instead of creating it,
	// with the flags RestoreFlags. The container then runs.
	Restore      string
	RestoreFlags []string
}

// Failure is an error that the monitor reports from the runtime.
type Failure struct {
	// Text is the runtime's stderr; empty if it exited without a message.
	Text string
}

func (f *Failure) Error() string {
	if f.Text == "" {
		return "conmon ended without an answer"
	}
	return f.Text
}

// ErrLogPath is the error of a bundle whose path cannot be passed to conmon.
var ErrLogPath = errors.New("run directory with a colon")

// args are conmon's arguments for creating the container.
func (c Container) args() ([]string, error) {
	log, err := c.logDriver()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--cid", c.ID, "--cuuid", c.ID,
		"--bundle", c.Bundle, "--persist-dir", c.Bundle, "--full-attach",
		"--container-pidfile", initPidFile(c.Bundle),
		"--conmon-pidfile", MonitorPidFile(c.Bundle),
		"--log-path", log,
		// The kernel has the lines already. An fsync at exit would only delay the exit status.
		"--no-sync-log",
	}
	if len(c.Name) <= maxName && plainName.MatchString(c.Name) {
		args = append(args, "--name", c.Name)
	}
	if c.Terminal {
		args = append(args, "--terminal")
	}
	if c.Stdin {
		args = append(args, "--stdin")
		if !c.StdinOnce || c.Terminal { // a terminal has no end of input, its user types ^D
			args = append(args, "--leave-stdin-open")
		}
	}
	if c.Restore != "" {
		args = append(args, "--restore", c.Restore)
		for _, flag := range c.RestoreFlags {
			args = append(args, "--runtime-opt="+flag)
		}
	}
	return append(args, c.Runtime.flags()...), nil
}

// plainName matches names that glib cannot take for a flag. Kubernetes' names of containers are DNS labels.
var plainName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// maxName bounds such a name, in bytes. It is not a part of the pattern: compiling a repetition with a large bound
// takes half a millisecond of each start of the program, which starts itself for every layer of a pull.
const maxName = 253

func (r Runtime) flags() []string {
	flags := []string{"--runtime", r.Path}
	for _, a := range r.Args {
		// One argument: glib would take a value that begins with a dash for a flag of conmon.
		flags = append(flags, "--runtime-arg="+a)
	}
	return flags
}

// logDriver is conmon's --log-path: conmon takes a path without the name of a driver for a file in the format of CRI.
// It cuts the value at each colon without an error, and would log elsewhere.
func (c Container) logDriver() (string, error) {
	if strings.Contains(c.Bundle, ":") {
		return "", fmt.Errorf("%w: %q: %w", ErrLogPath, c.Bundle, errdefs.ErrInvalidArgument)
	}
	if c.Log == nil {
		return "none", nil
	}
	return filepath.Join(c.Bundle, logName), nil
}

// Validate returns the error of a container that cannot be described to conmon.
func (c Container) Validate() error {
	_, err := c.args()
	return err
}
