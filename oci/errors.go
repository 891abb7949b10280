package oci

import "errors"

// ErrCommand is the kind of error of a container or exec whose own command cannot be run: it does not exist,
// or may not be executed. It comes from Create, Start or ExecSync, depending on when the runtime looks:
// runc 1.5 and crun 1.8 both look during Create. The user's mistake, not the node's: errors.Is tells, and
// errors.As with *CommandError gives the exit code to report.
//
// A file that the kernel refuses to execute (exec format error) is not found out before the container's
// process becomes it: that is an ordinary exit, with the runtime's complaint in the container's log.
var ErrCommand = errors.New("command cannot be run")

// CommandError says why a container's command cannot be run.
type CommandError struct {
	// Code is what a shell would report: 127 not found, 126 found but not executable.
	Code int32
	// Text is the runtime's own message.
	Text string
}

func (e *CommandError) Error() string { return e.Text }

// Is makes errors.Is(err, ErrCommand) true.
func (e *CommandError) Is(target error) bool { return target == ErrCommand }
