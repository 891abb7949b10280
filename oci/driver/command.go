package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Command is one run of a short program that prints an answer and exits.
type Command struct {
	Path string
	Args []string
	// Env is the whole environment; nil is the daemon's own: see Environment.
	Env []string
	// Dir is the working directory, empty for the daemon's.
	Dir   string
	Stdin io.Reader
	// Started, if set, is called with the pid, which is also the process group, of the program that was started. Its error
	// kills the program, and is the error of Run.
	Started func(pid int) error
	// Limit caps what is kept of stdout and of stderr, in bytes each.
	Limit int64
}

const (
	// outputDelay is how long the pipes of an exited program are read: a hook may hold them open.
	outputDelay = time.Second
	// killGrace is how long a killed program may take to exit. It is longer than outputDelay.
	killGrace = 3 * time.Second
)

// ErrUnkillable is the error of a program that does not exit after SIGKILL.
var ErrUnkillable = errors.New("process survives SIGKILL")

// Run runs the program in a process group of its own, and kills the group when ctx ends. It returns ctx's cause then,
// with ErrUnkillable if the program does not die; else the error of exec.Cmd.Run. Stdout and stderr are returned in
// any case.
func (c Command) Run(ctx context.Context) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	out, complaint := NewCapped(c.Limit), NewCapped(c.Limit)
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, c.Stdin, out, complaint
	// A signal to the daemon's group must not end a runtime halfway.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	err = runKillable(ctx, cmd, c.Started)
	switch {
	case errors.Is(err, ErrUnkillable): // it still writes to the buffers
		return nil, nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		err = nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return out.Bytes(), complaint.Bytes(), err
}

// runKillable is cmd.Run, except that it does not wait for a program that is stuck in the kernel and survives SIGKILL:
// a goroutine reaps that one.
func runKillable(ctx context.Context, cmd *exec.Cmd, started func(pid int) error) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	var refused error
	if started != nil {
		if refused = started(cmd.Process.Pid); refused != nil {
			_ = cmd.Cancel()
		}
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(refused, cmd.Wait()) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(killGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ErrUnkillable
	}
}

// Environment is the part of the daemon's environment that runtimes, shims and monitors get: where programs, the time
// zone and the system bus are. The rest may hold credentials, and hooks inherit it.
func Environment() []string {
	var env []string
	for _, key := range []string{"PATH", "TZ", "XDG_RUNTIME_DIR", "DBUS_SYSTEM_BUS_ADDRESS"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}
