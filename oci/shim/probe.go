package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
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

// Ready returns why the handler cannot be used. It probes if that has not been done, and again some seconds after a
// failed probe, so that installing the missing package is enough.
func (r *Runtime) Ready() error {
	_, err := r.probes.Get()
	return err
}

// Features returns the features of the handler; the minimum if it is not ready.
func (r *Runtime) Features() oci.Features {
	f, _ := r.probes.Get() // the error is Ready's
	return f
}

// Probe queries the shim for its version and features, and caches the result. It returns the error that Ready then
// returns.
func (r *Runtime) Probe(ctx context.Context) error { return r.probes.Probe(ctx) }

// defaultFeatures are those of a shim that was not probed.
func (r *Runtime) defaultFeatures() oci.Features {
	flags, _ := r.cfg.Options[runscFlags].(map[string]any) // gVisor's shim only
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
	if why := r.queryFeatures(ctx, &f); why != "" {
		return f, fmt.Errorf("handler %s: %s: %w", r.cfg.Name, why, errdefs.ErrUnavailable)
	}
	return f, nil
}

// queryVersion returns the name of the shim and its version.
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
	cmd := exec.Command(path, "-v")
	cmd.Env = driver.Environment()
	out, err := runProgram(ctx, "shim version", cmd)
	if err != nil {
		return "", fmt.Errorf("handler %s: %w: %w", r.cfg.Name, err, errdefs.ErrUnavailable)
	}
	return parseVersion(path, out), nil
}

// parseVersion parses "<name>:\n  Version: <v>\n...", or returns the first line of the output of another shim.
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

// versionLimit is the longest version that is reported.
const versionLimit = 200

// Annotations of a shim's answer to the info action: why it cannot run pods with the handler's options, and the
// administrator should know. Ours for virtual machines has them.
const (
	annotationUnusable = "podd.unusable"
	annotationWarning  = "podd.warning"
	// annotationLimit is how much of one is reported, in bytes.
	annotationLimit = 1000
)

// queryFeatures fills in the result of the shim's info action, and returns why the shim cannot be used, "" if it can. A
// shim without that action is used as one of OCI 1.0.
func (r *Runtime) queryFeatures(ctx context.Context, f *oci.Features) (unusable string) {
	info := r.queryInfo(ctx)
	var said features.Features
	if json.Unmarshal(info.GetFeatures().GetValue(), &said) == nil {
		if v := said.OCIVersionMax; strings.HasPrefix(v, "1.") && len(v) < versionLimit {
			f.OCIVersion = v
		}
		f.MountOptions = said.MountOptions
		// Where a virtual machine gets a mount by the host, this kernel makes it read-only, too.
		f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro") && driver.KernelRecursiveReadOnly()
	}
	f.Warning = annotation(info, annotationWarning)
	return annotation(info, annotationUnusable)
}

func annotation(info *types.RuntimeInfo, name string) string {
	text := info.GetAnnotations()[name]
	return strings.ToValidUTF8(text[:min(len(text), annotationLimit)], "?")
}

// queryInfo returns the answer to the shim's info action, nil if there is none.
func (r *Runtime) queryInfo(ctx context.Context) *types.RuntimeInfo {
	path, err := r.lookup(r.cfg.Path)
	if err != nil {
		return nil
	}
	var input []byte
	if o, err := r.options(); err == nil {
		input, _ = proto.Marshal(o) // an Any always encodes
	}
	cmd := exec.Command(path, "-info")
	cmd.Env, cmd.Stdin = driver.Environment(), bytes.NewReader(input)
	out, err := runProgram(ctx, "shim info", cmd)
	info := &types.RuntimeInfo{}
	if err != nil || proto.Unmarshal(out, info) != nil {
		return nil
	}
	return info
}
