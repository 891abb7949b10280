package runc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// commandTimeout bounds one short verb of the runtime when the caller's context has no nearer deadline.
const commandTimeout = time.Minute

// outputLimit caps what is kept of a runtime's answer or complaint.
const outputLimit = 1 << 20

// run executes `<runtime> <global flags> <args>` and returns its stdout. An error carries the runtime's own
// words and is classified (see failure).
func (r *Runtime) run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	bin, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, err
	}
	return runCommand(ctx, command{Path: bin, Args: append(r.globalArgs(), args...), Env: r.environment(), Stdin: stdin})
}

// globalArgs are the flags that stand before the runtime's verb.
func (r *Runtime) globalArgs() []string {
	args := []string{"--root", r.cfg.Root}
	if r.cfg.SystemdCgroup {
		args = append(args, "--systemd-cgroup")
	}
	for _, name := range slices.Sorted(maps.Keys(r.cfg.Options)) {
		args = append(args, "--"+name+"="+r.cfg.Options[name])
	}
	return args
}

// environment is what runtimes and monitors get of the daemon's environment: where programs, the time zone
// and the system bus are. Nothing else, for it may hold credentials, and hooks inherit it.
func (r *Runtime) environment() []string {
	var env []string
	for _, key := range []string{"PATH", "TZ", "XDG_RUNTIME_DIR", "DBUS_SYSTEM_BUS_ADDRESS"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// command is one run of a program that answers and ends.
type command struct {
	Path  string
	Args  []string
	Env   []string
	Stdin io.Reader
}

// runCommand runs the program in a process group of its own, kills the group when ctx ends, and returns
// stdout. The error of a program that failed carries its stderr.
func runCommand(ctx context.Context, c command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	stdout, stderr := &capped{limit: outputLimit}, &capped{limit: outputLimit}
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Env, c.Stdin, stdout, stderr
	// A group of its own: a signal to the daemon's group must not end a runtime half way.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A hook that keeps our pipes open must not keep us.
	cmd.WaitDelay = time.Second
	err := runKillable(ctx, cmd)
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return stdout.buf.Bytes(), nil
	}
	if errors.Is(err, errUnkillable) {
		return nil, fmt.Errorf("%s: %w: %w", verb(c), context.Cause(ctx), err)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", verb(c), context.Cause(ctx))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w", verb(c), err)
	}
	text := complaint(stderr.buf.Bytes())
	if text == "" {
		text = exit.Error()
	}
	return nil, failure(verb(c), text)
}

// killGrace is how long a killed program may take to go. It is longer than WaitDelay.
const killGrace = 3 * time.Second

var errUnkillable = errors.New("it does not die when it is killed")

// runKillable is cmd.Run, but for a program that survives its kill, being stuck in the kernel: that one is left to a
// goroutine that waits for it, so that a start of podd, or a client, does not wait with it.
func runKillable(ctx context.Context, cmd *exec.Cmd) error {
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
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
		return errUnkillable
	}
}

// verb names the command in errors: the program and its first argument that is not a flag or a flag's value.
func verb(c command) string {
	name := c.Path[strings.LastIndexByte(c.Path, '/')+1:]
	for i := 0; i < len(c.Args); i++ {
		switch a := c.Args[i]; {
		case a == "--root":
			i++
		case strings.HasPrefix(a, "--"):
		default:
			return name + " " + a
		}
	}
	return name
}

// capped keeps the first limit bytes written to it and drops the rest.
type capped struct {
	buf   bytes.Buffer
	limit int64
}

func (c *capped) Write(p []byte) (int, error) {
	if room := c.limit - int64(c.buf.Len()); int64(len(p)) > room {
		c.buf.Write(p[:max(room, 0)])
	} else {
		c.buf.Write(p)
	}
	return len(p), nil
}
