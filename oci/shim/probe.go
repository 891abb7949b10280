package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"google.golang.org/protobuf/proto"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/program"
)

// Ready says why the handler cannot be used. It probes when that was never done, and again when the last probe failed
// some seconds ago, so that installing the missing package is enough.
func (r *Runtime) Ready() error {
	_, err := r.probes.Get()
	return err
}

// Features is what the handler can do; of a handler that is not ready, only what is certain.
func (r *Runtime) Features() oci.Features {
	f, _ := r.probes.Get() // the error is Ready's
	return f
}

// Probe asks the shim for its version and features, and keeps the answers. The error is what Ready will say.
func (r *Runtime) Probe(ctx context.Context) error { return r.probes.Ask(ctx) }

// certain is what is known without asking.
func (r *Runtime) defaultFeatures() oci.Features {
	flags, _ := r.cfg.Options[runscFlags].(map[string]any) // none but for gVisor's shim
	return oci.Features{
		OCIVersion: driver.FallbackOCIVersion, OwnKernel: !r.cfg.HostKernel,
		HostNetwork: r.cfg.ConfigPath == "" && flags[oci.NetworkOption] == oci.HostNetworkOption,
	}
}

func (r *Runtime) probe(ctx context.Context) (f oci.Features, err error) {
	f = r.defaultFeatures()
	if f.Version, err = r.queryVersion(ctx); err != nil {
		return f, err
	}
	if r.cfg.Stdio == "" {
		return f, fmt.Errorf("handler %s: %w: %w", r.cfg.Name, program.ErrNotBuilt, errdefs.ErrUnavailable)
	}
	r.queryFeatures(ctx, &f)
	return f, nil
}

// version is the name of the shim and what it says of its version.
func (r *Runtime) queryVersion(ctx context.Context) (string, error) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return "", err
	}
	if r.cfg.Runtime != "" {
		if _, err := r.lookup(r.cfg.Runtime); err != nil {
			return "", err
		}
	}
	out, err := runProgram(ctx, "shim version", driver.Command{Path: path, Args: []string{"-v"}, Env: driver.Environment()})
	if err != nil {
		return "", fmt.Errorf("handler %s: %w: %w", r.cfg.Name, err, errdefs.ErrUnavailable)
	}
	return parseVersion(path, out), nil
}

// parseVersion reads "<name>:\n  Version: <v>\n...", or what a shim of another making prints first.
func parseVersion(path string, out []byte) string {
	name, apiVersion := shimName(path)
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Version:"); ok {
			return strings.TrimSpace("containerd-shim-" + name + "-" + apiVersion + " " + strings.TrimSpace(v))
		}
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if line = strings.TrimSpace(strings.ToValidUTF8(line, "?")); line == "" {
		line = "containerd-shim-" + name + "-" + apiVersion
	}
	return line[:min(len(line), versionLimit)]
}

// versionLimit bounds what is shown of a version.
const versionLimit = 200

// inform fills in what the shim's info action says. A shim without it is used as one of OCI 1.0.
func (r *Runtime) queryFeatures(ctx context.Context, f *oci.Features) {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return
	}
	var input []byte
	if o, err := r.options(); err == nil {
		input, _ = proto.Marshal(o) // an Any always encodes
	}
	out, err := runProgram(ctx, "shim info", driver.Command{
		Path: path, Args: []string{"-info"}, Env: driver.Environment(), Stdin: bytes.NewReader(input),
	})
	if err != nil {
		return
	}
	info := &types.RuntimeInfo{}
	var said features.Features
	if proto.Unmarshal(out, info) != nil || json.Unmarshal(info.GetFeatures().GetValue(), &said) != nil {
		return
	}
	if v := said.OCIVersionMax; strings.HasPrefix(v, "1.") && len(v) < versionLimit {
		f.OCIVersion = v
	}
	f.MountOptions = said.MountOptions
	if r.cfg.HostKernel {
		f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro") && driver.KernelRecursiveReadOnly()
	}
}
