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

	bootstrap "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/shim/stdio"
	"github.com/podd-project/podd/oci/subprocess"
)

// endpoint is a shim's socket and protocol.
type endpoint struct {
	// address is a socket's absolute path.
	address string
	// version of the task API, 2 or 3.
	version int32
}

// answerLimit bounds the part of a shim binary's output that is kept, in bytes.
const answerLimit = 64 << 10

// bootShim runs the shim's start action in the bundle, which starts the shim, and returns the shim's address.
func (r *Runtime) bootShim(ctx context.Context, b bundle, options *anypb.Any) (endpoint, error) {
	events := stdio.EventsAddress(b.Dir())
	params := &bootstrap.BootstrapParams{
		InstanceID: b.ID(), Namespace: namespace,
		ContainerdGrpcAddress: events, ContainerdTtrpcAddress: events, ContainerdBinary: r.cfg.Stdio,
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
	// The shim opens its log as a named pipe and would wait for a reader. A plain file needs none.
	if err := os.WriteFile(b.log(), nil, 0o600); err != nil {
		return endpoint{}, fmt.Errorf("shim log: %w", err)
	}
	var out []byte
	err = subprocess.Neutral(func() (err error) { out, err = r.shimAction(ctx, b, "start", input); return err })
	if err != nil {
		return endpoint{}, err
	}
	e, err := parseStartAnswer(out)
	if err != nil {
		return endpoint{}, fmt.Errorf("shim start: %w", err)
	}
	return e, nil
}

// socketDirLimit leaves room for a socket's name of 64 digits in an address of 106 bytes.
const socketDirLimit = 40

// shimAction runs an action of the shim binary in the bundle, as containerd does, and returns its output.
func (r *Runtime) shimAction(ctx context.Context, b bundle, action string, input []byte) ([]byte, error) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil, err
	}
	events := stdio.EventsAddress(b.Dir())
	args := []string{"-namespace", namespace, "-address", events, "-publish-binary", r.cfg.Stdio, "-id", b.ID()}
	if action != "start" {
		args = append(args, "-bundle", b.Dir())
	}
	env := append(driver.Environment(), "GOMAXPROCS=2", "MAX_SHIM_VERSION=2",
		"TTRPC_ADDRESS="+events, "GRPC_ADDRESS="+events, "NAMESPACE="+namespace)
	cmd := exec.Command(path, append(args, action)...)
	cmd.Env, cmd.Dir, cmd.Stdin = env, b.Dir(), bytes.NewReader(input)
	return runProgram(ctx, "shim "+action, cmd)
}

// runProgram runs the shim binary and returns its stdout. The error of a failure names the action and carries the
// output.
func runProgram(ctx context.Context, action string, cmd *exec.Cmd) ([]byte, error) {
	stdout, stderr, err := subprocess.Run(ctx, cmd, answerLimit)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return stdout, nil
	case !errors.As(err, &exit):
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	text := strings.ToValidUTF8(strings.TrimSpace(string(stderr)+" "+string(stdout)), "?")
	return nil, fmt.Errorf("%s: %w: %s", action, err, text)
}

// parseStartAnswer parses the output of the start action: the BootstrapResult message (containerd 2.3 and later), the
// same as JSON (2.0 and later), or the bare address of a shim with protocol version 2.
func parseStartAnswer(out []byte) (endpoint, error) {
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
		return endpoint{}, fmt.Errorf("the shim's protocol version is %d, want 2 or 3: %w", result.Version,
			errdefs.ErrNotImplemented)
	}
	if !strings.EqualFold(result.Protocol, "ttrpc") {
		return endpoint{}, fmt.Errorf("the shim's protocol is %.20q, want ttrpc: %w", result.Protocol,
			errdefs.ErrNotImplemented)
	}
	path, err := parseAddress(result.Address)
	return endpoint{address: path, version: result.Version}, err
}
