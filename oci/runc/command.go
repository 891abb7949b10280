package runc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/podd-project/podd/oci/driver"
)

// commandTimeout bounds one short command of the runtime.
const commandTimeout = time.Minute

// outputLimit caps what is kept of a runtime's output, in bytes.
const outputLimit = 1 << 20

// runRuntime runs `<runtime> <global flags> <args>` and returns its stdout. An error carries the runtime's message and
// is classified by driver.Failure.
func (r *Runtime) runRuntime(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	bin, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, err
	}
	return runCommand(ctx, driver.Command{Path: bin, Args: append(r.globalArgs(), args...), Stdin: stdin})
}

// globalArgs are the flags before the runtime's command.
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

// runCommand runs the program for at most commandTimeout and returns its stdout. The error of a program that failed
// carries its stderr.
func runCommand(ctx context.Context, c driver.Command) ([]byte, error) {
	return runNamed(ctx, commandName(c), c)
}

// runNamed is runCommand for a command that has another name in errors.
func runNamed(ctx context.Context, name string, c driver.Command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	c.Env, c.Limit = driver.Environment(), outputLimit
	stdout, stderr, err := c.Run(ctx)
	if err == nil {
		return stdout, nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text := driver.Complaint(stderr)
	if text == "" {
		text = exit.Error()
	}
	return nil, driver.Failure(name, text)
}

// commandName names the command in errors: the program and its first argument that is not a flag or a flag's value.
func commandName(c driver.Command) string {
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
