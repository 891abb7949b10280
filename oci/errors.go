package oci

import "errors"

// ErrCommand is the kind of the error of a container or exec whose command does not exist or may not be executed. It
// is returned by Create, Start or ExecSync, depending on when the runtime checks: runc 1.5 and crun 1.8 check in
// Create. It is the user's error, not the node's. errors.As with *CommandError gives the exit code to report.
//
// A file that the kernel refuses to execute (exec format error) is detected only when the container's process becomes
// it: that is an ordinary exit, and the runtime's message is in the container's log.
var ErrCommand = errors.New("command cannot be run")

// CommandError is the error of a command that cannot be run.
type CommandError struct {
	// Code is the exit code of a shell: 127 not found, 126 found but not executable.
	Code int32
	// Text is the runtime's message.
	Text string
}

func (e *CommandError) Error() string { return e.Text }

// Is makes errors.Is(err, ErrCommand) true.
func (e *CommandError) Is(target error) bool { return target == ErrCommand }

// ErrNoEffect is the kind of the error of an update of limits that do not hold for the container: it shares the sandbox
// of its pod, which knows only limits of the pod.
var ErrNoEffect = errors.New("the limits of this container have no effect, those of its pod have")

// ErrNoMonitor is the kind of the error that the monitor of a container has died while the container runs. Its log has
// ended, and its exit status will be unknown. Another monitor cannot take its place: the ends of the pipes from which
// it read the output, and the right to wait for the container's process, are gone with it.
var ErrNoMonitor = errors.New("monitor died: output is no longer logged, the exit status will be unknown")
