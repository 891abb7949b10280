package runc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/subprocess"
)

// commandTimeout bounds one short command of the runtime.
const commandTimeout = time.Minute

// outputLimit bounds the part of a runtime's output that is kept, in bytes.
const outputLimit = 1 << 20

// runRuntime runs `<runtime> <global flags> <args>` and returns its stdout. An error carries the runtime's message and
// is classified by driver.Failure.
func (r *Runtime) runRuntime(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	bin, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, append(r.globalArgs(), args...)...)
	cmd.Stdin = stdin
	return runCommand(ctx, cmd)
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
func runCommand(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	return runNamed(ctx, commandName(cmd.Path, cmd.Args[1:]), cmd)
}

// runNamed is runCommand for a command that has another name in errors.
func runNamed(ctx context.Context, name string, cmd *exec.Cmd) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd.Env = driver.Environment()
	stdout, stderr, err := subprocess.Run(ctx, cmd, outputLimit)
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
func commandName(path string, args []string) string {
	name := filepath.Base(path)
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--root":
			i++
		case strings.HasPrefix(a, "--"):
		default:
			return name + " " + a
		}
	}
	return name
}
