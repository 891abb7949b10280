// Package conmon starts conmon, the monitor of one container or of one exec session, and speaks to it.
//
// conmon (2.1.6 or later) is a small C program that calls the OCI runtime, stays as the parent of the
// container's first process, owns its output (the CRI log file, the attach socket), and leaves its exit
// status in a file. It forks away from the daemon into a session of its own, so containers and their logs
// outlive any daemon.
//
// All it leaves stands in the bundle: conmon.pid, pidfile, exit, oom, attach, ctl, winsz. The package knows
// of no container but through its bundle's path; it keeps nothing in memory and never kills. Only package oci
// may call it.
package conmon

import (
	"errors"
	"fmt"
	"path/filepath"
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

// Container is what the monitor of a container must know.
type Container struct {
	// Conmon is the path of conmon.
	Conmon string
	// Env is the environment of conmon and of the runtime.
	Env     []string
	Runtime Runtime
	ID      string
	// Bundle is the container's directory, with config.json; the monitor's files go there too.
	Bundle string
	// LogPath is the CRI log, appended to; empty discards the output.
	LogPath string
	// Terminal, Stdin and StdinOnce are the CRI fields of the same names.
	Terminal, Stdin, StdinOnce bool
}

// Failure is an error that the monitor passes on from the runtime.
type Failure struct {
	// Text is the runtime's stderr; empty when it died without a word.
	Text string
}

func (f *Failure) Error() string {
	if f.Text == "" {
		return "conmon ended without an answer"
	}
	return f.Text
}

// ErrLogPath is returned for a log path that conmon cannot be told.
var ErrLogPath = errors.New("log path with a colon")

// args are conmon's arguments for creating the container.
func (c Container) args() ([]string, error) {
	log, err := logDriver(c.LogPath)
	if err != nil {
		return nil, err
	}
	args := []string{
		"--cid", c.ID, "--cuuid", c.ID,
		"--bundle", c.Bundle, "--persist-dir", c.Bundle, "--full-attach",
		"--container-pidfile", filepath.Join(c.Bundle, "pidfile"),
		"--conmon-pidfile", MonitorPidFile(c.Bundle),
		"--log-path", log,
		// The kernel has the lines already; an fsync at exit would only hold the exit status back.
		"--no-sync-log",
	}
	if c.Terminal {
		args = append(args, "--terminal")
	}
	if c.Stdin {
		args = append(args, "--stdin")
		if !c.StdinOnce {
			args = append(args, "--leave-stdin-open")
		}
	}
	return append(args, c.Runtime.flags()...), nil
}

func (r Runtime) flags() []string {
	flags := []string{"--runtime", r.Path}
	for _, a := range r.Args {
		// One word: glib would take a value that begins with a dash for a flag of conmon.
		flags = append(flags, "--runtime-arg="+a)
	}
	return flags
}

// logDriver is conmon's --log-path. conmon cuts its value at every colon, silently, and would log elsewhere.
func logDriver(path string) (string, error) {
	switch {
	case path == "":
		return "none", nil
	case strings.Contains(path, ":"):
		return "", fmt.Errorf("%w: %q: %w", ErrLogPath, path, errdefs.ErrInvalidArgument)
	}
	return "k8s-file:" + path, nil
}

// Validate says what conmon could not be told.
func (c Container) Validate() error {
	_, err := c.args()
	return err
}
