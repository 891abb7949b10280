package conmon

import (
	"context"
	"fmt"
	"os"

	"github.com/podd-project/podd/oci/subprocess"
)

// Exec is one command to run in a running container under a separate monitor.
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
	// Opts are further options of the runtime's exec verb.
	Opts []string
	// Stdin, Stdout and Stderr become the command's own: conmon does not use them. A nil Stdin is /dev/null. The caller
	// closes them.
	Stdin, Stdout, Stderr *os.File
	// Terminal is a directory for the monitor's sockets if the command gets a terminal, which is then reached by
	// Session.Attach instead of the files.
	Terminal string
}

// Session is a running command. Pid must be called before Status, each once.
type Session struct {
	m        *monitor
	terminal string
	// attach is the pipe on which conmon reports that its socket exists, begin the one on which it waits before the
	// command starts. With a terminal only.
	attach *syncPipe
	begin  *os.File
}

// StartExec starts the monitor, which calls `<runtime> exec --detach`. The monitor is a child of the daemon: the
// session ends with it. With a terminal the command waits for Attach and Begin, so that no output is lost.
func StartExec(e Exec) (*Session, error) {
	args := []string{
		"--exec", "--sync", "--api-version", "1",
		"--cid", e.ID, "--cuuid", e.ID,
		"--exec-process-spec", e.Process, "--container-pidfile", e.PidFile,
	}
	for _, o := range e.Opts {
		args = append(args, "--runtime-opt="+o) // one word, as in Runtime.flags
	}
	if e.Terminal != "" {
		return startTerminal(e, append(args,
			"--terminal", "--exec-attach", "--bundle", e.Terminal, "--full-attach", "--log-path", "none"))
	}
	// The command writes straight into the given descriptors.
	args = append(append(args, "--log-path", "passthrough"), e.Runtime.flags()...)
	m, err := start(e.Conmon, args, e.Env, options{dir: e.Bundle, stdio: [3]*os.File{e.Stdin, e.Stdout, e.Stderr}})
	if err != nil {
		return nil, err
	}
	return &Session{m: m}, nil
}

func startTerminal(e Exec, args []string) (*Session, error) {
	attach, attachEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("attach pipe: %w", err)
	}
	defer attachEnd.Close()
	beginEnd, begin, err := os.Pipe()
	if err != nil {
		attach.Close()
		return nil, fmt.Errorf("start pipe: %w", err)
	}
	defer beginEnd.Close()
	s := &Session{terminal: e.Terminal, attach: newSyncPipe(attach), begin: begin}
	s.m, err = start(e.Conmon, append(args, e.Runtime.flags()...), e.Env, options{
		dir: e.Bundle, tmp: e.Terminal, attach: attachEnd, begin: beginEnd,
	})
	if err != nil {
		s.closePipes()
		return nil, err
	}
	return s, nil
}

// Attach waits for the monitor's attach socket and connects to it.
func (s *Session) Attach(ctx context.Context) (*Conn, error) {
	if err := s.Begin(); err != nil { // the first word lets conmon make its socket
		return nil, err
	}
	if _, err := s.attach.read(ctx); err != nil {
		return nil, err
	}
	return Attach(s.terminal)
}

// Begin lets the command start.
func (s *Session) Begin() error {
	if _, err := s.begin.Write([]byte{0}); err != nil {
		return fmt.Errorf("start pipe: %w", err)
	}
	return nil
}

func (s *Session) closePipes() {
	if s.attach != nil {
		s.attach.Close()
		s.begin.Close()
	}
}

// Process is the monitor's process. The session's processes are its descendants.
func (s *Session) Process() *subprocess.Process { return s.m.process }

// Dir is the directory of the monitor's sockets, for Resize; empty without a terminal.
func (s *Session) Dir() string { return s.terminal }

// Pid waits until the command runs. The error is a *Failure without text if the runtime could not start it: the
// runtime's message went to Stderr.
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
		return 0, fmt.Errorf("conmon does not know the exit status: %s", a.Message)
	}
	return int32(a.value), nil
}

// Close waits for the monitor, which must have exited or been killed, and frees its resources.
func (s *Session) Close() error {
	s.m.sync.Close()
	s.closePipes()
	// Its exit status repeats the command's.
	_ = s.m.process.Wait(context.Background())
	return nil
}
