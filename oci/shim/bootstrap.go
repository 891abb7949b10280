package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// endpoint is where a shim listens, and how it is spoken to.
type endpoint struct {
	// address is a socket's absolute path.
	address string
	// version of the task API, 2 or 3.
	version int32
}

// answerLimit caps what is kept of what a shim binary prints.
const answerLimit = 64 << 10

// boot runs the shim's start action in the bundle. It starts the shim that stays, and answers with its address.
func (r *Runtime) boot(ctx context.Context, b bundle, options *anypb.Any) (endpoint, error) {
	events := b.events()
	if len(events) > addressLimit {
		return endpoint{}, fmt.Errorf("the path of socket %s is too long: %w", events, errdefs.ErrFailedPrecondition)
	}
	params := &bootstrap.BootstrapParams{
		InstanceID: b.id(), Namespace: namespace,
		ContainerdGrpcAddress: events, ContainerdTtrpcAddress: events, ContainerdBinary: r.cfg.Keeper,
	}
	if dir := filepath.Join(r.cfg.Root, "s"); len(dir) <= socketDirLimit {
		params.SocketDir = &dir
	}
	if options != nil {
		params.Extensions = []*bootstrap.Extension{{Value: options}}
	}
	input, err := proto.Marshal(params)
	if err != nil {
		return endpoint{}, fmt.Errorf("encode bootstrap parameters: %w", err)
	}
	// The shim opens its log as a named pipe and would wait for a reader. A plain file does as well, and needs none.
	if err := os.WriteFile(b.log(), nil, 0o600); err != nil {
		return endpoint{}, fmt.Errorf("shim log: %w", err)
	}
	out, err := r.act(ctx, b, "start", input)
	if err != nil {
		return endpoint{}, err
	}
	e, err := parseAnswer(out)
	if err != nil {
		return endpoint{}, fmt.Errorf("shim start: %w", err)
	}
	return e, nil
}

// socketDirLimit leaves room for the name of a socket, 64 digits, in its address, 106 bytes.
const socketDirLimit = 40

// act runs an action of the shim binary in the bundle, as containerd does, and returns what it prints.
func (r *Runtime) act(ctx context.Context, b bundle, action string, input []byte) ([]byte, error) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, err
	}
	events := b.events()
	args := []string{"-namespace", namespace, "-address", events, "-publish-binary", r.cfg.Keeper, "-id", b.id()}
	if action != "start" {
		args = append(args, "-bundle", string(b))
	}
	cmd := exec.CommandContext(ctx, path, append(args, action)...)
	cmd.Dir, cmd.Stdin = string(b), bytes.NewReader(input)
	cmd.Env = append(environment(), "GOMAXPROCS=2", "MAX_SHIM_VERSION=2",
		"TTRPC_ADDRESS="+events, "GRPC_ADDRESS="+events, "NAMESPACE="+namespace)
	return runProgram(ctx, cmd, "shim "+action)
}

// environment is what shims and their runtimes get of the daemon's environment: where programs, the time zone and the
// system bus are. Nothing else, for it may hold credentials, and hooks inherit it.
func environment() []string {
	var env []string
	for _, key := range []string{"PATH", "TZ", "XDG_RUNTIME_DIR", "DBUS_SYSTEM_BUS_ADDRESS"} {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return env
}

// outputDelay is how long the output of a program that has ended is still read: a child may hold it open.
const outputDelay = time.Second

// runProgram runs a short program in a process group of its own, which is killed when the command's context ends.
func runProgram(ctx context.Context, cmd *exec.Cmd, act string) ([]byte, error) {
	stdout, stderr := &capped{}, &capped{}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = outputDelay
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return stdout.buf.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", act, context.Cause(ctx))
	}
	text := strings.ToValidUTF8(strings.TrimSpace(stderr.buf.String()+" "+stdout.buf.String()), "?")
	return nil, fmt.Errorf("%s: %w: %s", act, err, text)
}

// capped keeps the first bytes written to it and drops the rest.
type capped struct{ buf bytes.Buffer } // not embedded: its ReadFrom knows no limit

func (c *capped) Write(p []byte) (int, error) {
	_, _ = c.buf.Write(p[:min(len(p), max(answerLimit-c.buf.Len(), 0))])
	return len(p), nil
}

// parseAnswer reads what the start action prints: the BootstrapResult message (containerd 2.3 and later), the same as
// JSON (2.0 and later), or the bare address of a shim that speaks version 2.
func parseAnswer(out []byte) (endpoint, error) {
	text := bytes.TrimSpace(out)
	result := &bootstrap.BootstrapResult{}
	switch {
	case bytes.HasPrefix(text, []byte("{")):
		var said struct {
			Version           int32
			Address, Protocol string
		}
		if err := json.Unmarshal(text, &said); err != nil {
			return endpoint{}, fmt.Errorf("answer %.80q: %w", text, err)
		}
		result.Version, result.Address, result.Protocol = said.Version, said.Address, said.Protocol
	case bytes.HasPrefix(text, []byte("unix://")):
		result.Version, result.Address, result.Protocol = 2, string(text), "ttrpc"
	default:
		if err := proto.Unmarshal(out, result); err != nil {
			return endpoint{}, fmt.Errorf("answer %.80q: %w", out, err)
		}
	}
	if result.Version != 2 && result.Version != 3 {
		return endpoint{}, fmt.Errorf("it speaks version %d, we speak 2 and 3: %w", result.Version, errdefs.ErrNotImplemented)
	}
	if !strings.EqualFold(result.Protocol, "ttrpc") {
		return endpoint{}, fmt.Errorf("it speaks %.20q, we speak ttrpc: %w", result.Protocol, errdefs.ErrNotImplemented)
	}
	path, err := parseAddress(result.Address)
	return endpoint{address: path, version: result.Version}, err
}
