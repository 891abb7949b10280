package conmon

import (
	"context"
	"fmt"
	"os"
)

// Exec is one command to run in a running container under a monitor of its own.
type Exec struct {
	// Conmon is the path of conmon.
	Conmon string
	// Env is the environment of conmon and of the runtime.
	Env     []string
	Runtime Runtime
	// ID and Bundle are the container's.
	ID, Bundle string
	// Process is the path of the process description (process of config.json), PidFile where the runtime
	// writes the command's pid.
	Process, PidFile string
	// Stdin, Stdout and Stderr become the command's own: conmon does not touch them. A nil Stdin is
	// /dev/null. They stay the caller's to close.
	Stdin, Stdout, Stderr *os.File
}

// Session is a running command. Pid must be asked first, then Wait; each once.
type Session struct{ m *monitor }

// StartExec starts the monitor, which calls `<runtime> exec --detach`. The monitor remains a child of the
// daemon: the session is over when the daemon is.
func StartExec(e Exec) (*Session, error) {
	args := []string{
		"--exec", "--sync", "--api-version", "1",
		"--cid", e.ID, "--cuuid", e.ID,
		"--exec-process-spec", e.Process, "--container-pidfile", e.PidFile,
		// The command writes straight into the given descriptors.
		"--log-path", "passthrough",
	}
	args = append(args, e.Runtime.flags()...)
	m, err := start(e.Conmon, args, e.Env, options{dir: e.Bundle, stdio: [3]*os.File{e.Stdin, e.Stdout, e.Stderr}})
	if err != nil {
		return nil, err
	}
	return &Session{m: m}, nil
}

// Process is the monitor's process; its descendants are all that the session runs.
func (s *Session) Process() *os.Process { return s.m.cmd.Process }

// Pid waits until the command runs. It is a *Failure, without text, when the runtime could not start it: the
// runtime's words went to Stderr.
func (s *Session) Pid(ctx context.Context) (int, error) {
	a, err := s.m.sync.read(ctx)
	if err != nil {
		return 0, err
	}
	if a.value <= 0 {
		return 0, &Failure{Text: a.Message}
	}
	return a.value, nil
}

// Status waits for the command's exit status.
func (s *Session) Status(ctx context.Context) (int32, error) {
	a, err := s.m.sync.read(ctx)
	if err != nil {
		return 0, err
	}
	if a.value < 0 {
		return 0, fmt.Errorf("conmon could not tell the exit status: %s", a.Message)
	}
	return int32(a.value), nil
}

// Close waits for the monitor, which must have ended or been killed, and frees what it used.
func (s *Session) Close() error {
	s.m.sync.Close()
	// Its exit status repeats the command's: of no interest.
	_ = s.m.cmd.Wait()
	return nil
}
