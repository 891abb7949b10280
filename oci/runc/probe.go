package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// capabilities are those of the runtime and the monitor.
type capabilities struct {
	features oci.Features
	// monitor is the first line of `conmon --version`.
	monitor string
	// directExec is true if the runtime's exec returns as soon as the command has exited, even if a child of it holds
	// the output open. crun passes its descriptors to the command; runc copies, and waits.
	directExec bool
}

// defaultCapabilities are those of a runtime that was not probed.
func defaultCapabilities() capabilities {
	return capabilities{features: oci.Features{OCIVersion: driver.FallbackOCIVersion}}
}

// Ready returns why the handler cannot be used: which binary is missing and where it was searched, or its output.
// It probes if that has not been done, and again some seconds after a failed probe, so that installing the missing
// package is enough.
func (r *Runtime) Ready() error {
	_, err := r.probes.Get()
	return err
}

// Features returns the features of the handler; the minimum if it is not ready.
func (r *Runtime) Features() oci.Features { return r.capabilities().features }

// MonitorVersion is the first line of `conmon --version`, "" if it cannot be run.
func (r *Runtime) MonitorVersion() string { return r.capabilities().monitor }

// Probe queries the runtime and the monitor for versions and features, and caches the result for Ready and Features.
// It returns the error that Ready then returns.
func (r *Runtime) Probe(ctx context.Context) error { return r.probes.Probe(ctx) }

// capabilities returns the last ones, also those of a handler that is not ready.
func (r *Runtime) capabilities() capabilities {
	a, _ := r.probes.Get() // the error is Ready's
	return a
}

func (r *Runtime) probe(ctx context.Context) (capabilities, error) {
	a := defaultCapabilities()
	version, errRuntime := r.queryVersion(ctx, r.cfg.Path)
	monitor, errMonitor := r.queryVersion(ctx, r.cfg.Conmon)
	if errMonitor == nil {
		errMonitor = checkMonitor(monitor)
	}
	a.monitor, a.features.Version = monitor, version
	if errRuntime == nil {
		a.features.OwnKernel = ownKernel(version)
		a.features.HostNetwork = a.features.OwnKernel && r.cfg.Options[oci.NetworkOption] == oci.HostNetworkOption
		a.directExec = strings.HasPrefix(version, "crun ")
		r.queryFeatures(ctx, &a.features)
		a.features.Checkpoints = r.probeCheckpoints(ctx, version)
	}
	return a, errors.Join(errRuntime, errMonitor, r.checkInitProxy(version))
}

// queryVersion returns the first line of `<name> --version`.
func (r *Runtime) queryVersion(ctx context.Context, name string) (string, error) {
	path, err := r.lookup(name)
	if err != nil {
		return "", err
	}
	out, err := runCommand(ctx, exec.Command(path, "--version"))
	if err != nil {
		return "", fmt.Errorf("handler %s: %w: %w", r.cfg.Name, err, errdefs.ErrUnavailable)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}

// queryFeatures fills in the result of `<runtime> features`. A runtime without that command is used as one of OCI 1.0.
func (r *Runtime) queryFeatures(ctx context.Context, f *oci.Features) {
	out, err := r.runRuntime(ctx, nil, "features")
	if err != nil {
		// crun has recursive read-only mounts since 1.4, the features command since 1.9.
		f.RecursiveReadOnly = atLeast(f.Version, "crun version ", "1.4") && driver.KernelRecursiveReadOnly()
		return
	}
	said := parseFeatures(out)
	if said.OCIVersionMax != "" {
		f.OCIVersion = said.OCIVersionMax
	}
	f.MountOptions = said.MountOptions
	if f.OwnKernel { // its mount options are right as reported; this kernel's abilities do not matter
		f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro")
		return
	}
	f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro") && driver.KernelRecursiveReadOnly()
	f.UserNamespaces = supportsIDMap(said) && driver.KernelIDMap(r.cfg.RunDir)
}

// parseFeatures is lenient: unknown fields and wrong values do not make the handler unusable.
func parseFeatures(b []byte) features.Features {
	var f features.Features
	_ = json.Unmarshal(b, &f)
	return f
}

// supportsIDMap reports whether the runtime supports idmapped mounts and user namespaces.
func supportsIDMap(f features.Features) bool {
	if f.Linux == nil || f.Linux.MountExtensions == nil || f.Linux.MountExtensions.IDMap == nil {
		return false
	}
	enabled := f.Linux.MountExtensions.IDMap.Enabled
	return enabled != nil && *enabled && (f.Linux.Namespaces == nil || slices.Contains(f.Linux.Namespaces, "user"))
}

// checkInitProxy refuses a runtime with its own kernel in a podd that was built without the init proxy.
func (r *Runtime) checkInitProxy(version string) error {
	if ownKernel(version) && r.cfg.InitProxy == "" {
		return fmt.Errorf("podd was built without the init proxy, which %q needs: run make embedded: %w", version,
			errdefs.ErrUnavailable)
	}
	return nil
}

// ownKernel reports whether a runtime of this version runs containers in its own kernel, as gVisor's does.
func ownKernel(version string) bool { return strings.HasPrefix(version, "runsc ") }

// checkMonitor refuses a conmon that lacks flags that podd uses.
func checkMonitor(version string) error {
	if !atLeast(version, "conmon version ", conmon.MinVersion) {
		return fmt.Errorf("%q is too old, conmon %s is needed: %w", version, conmon.MinVersion, errdefs.ErrUnavailable)
	}
	return nil
}

// atLeast reports whether "<prefix>1.2.3-suffix" is at least a version, by its numbers.
func atLeast(version, prefix, least string) bool {
	rest, ok := strings.CutPrefix(version, prefix)
	if !ok {
		return false
	}
	have, want := versionNumbers(rest), versionNumbers(least)
	for i := range want {
		if have[i] != want[i] {
			return have[i] > want[i]
		}
	}
	return true
}

// versionNumbers are the leading numbers of a version, zeros where there are none.
func versionNumbers(version string) (n [3]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		end := strings.IndexFunc(part, func(c rune) bool { return c < '0' || c > '9' })
		if end < 0 {
			end = len(part)
		}
		n[i], _ = strconv.Atoi(part[:end])
	}
	return n
}
