package runc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/runc/conmon"
)

// answers is what the runtime and the monitor say of themselves.
type capabilities struct {
	features oci.Features
	// monitor is the first line of `conmon --version`.
	monitor string
	// reaps is true when the runtime's exec verb returns as soon as the command has ended, though a child
	// of it holds the output open. crun hands its own descriptors to the command; runc copies, and waits.
	directExec bool
}

// certain is what is known without asking.
func defaultCapabilities() capabilities {
	return capabilities{features: oci.Features{OCIVersion: driver.FallbackOCIVersion}}
}

// Ready says why the handler cannot be used: which binary is missing and where it was looked for, or what it
// answered. It probes when that was never done, and again when the last probe failed some seconds ago, so
// that installing the missing package is enough.
func (r *Runtime) Ready() error {
	_, err := r.probes.Get()
	return err
}

// Features is what the handler can do; of a handler that is not ready, only what is certain.
func (r *Runtime) Features() oci.Features { return r.capabilities().features }

// MonitorVersion is the first line that conmon says of itself, "" when it cannot be asked.
func (r *Runtime) MonitorVersion() string { return r.capabilities().monitor }

// Probe asks the runtime and the monitor for versions and features, and keeps the answers for Ready and
// Features. The error is what Ready will say.
func (r *Runtime) Probe(ctx context.Context) error { return r.probes.Ask(ctx) }

// answers are the last ones, of a handler that is not ready, too.
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
		a.features.Advisories = advisories(version)
		a.features.OwnKernel = ownKernel(version)
		a.features.HostNetwork = a.features.OwnKernel && r.cfg.Options[oci.NetworkOption] == oci.HostNetworkOption
		a.directExec = strings.HasPrefix(version, "crun ")
		r.queryFeatures(ctx, &a.features)
	}
	return a, errors.Join(errRuntime, errMonitor, r.checkInitProxy(version))
}

// version returns the first line of `<name> --version`.
func (r *Runtime) queryVersion(ctx context.Context, name string) (string, error) {
	path, err := r.lookup(name)
	if err != nil {
		return "", err
	}
	out, err := runCommand(ctx, driver.Command{Path: path, Args: []string{"--version"}})
	if err != nil {
		return "", fmt.Errorf("handler %s: %w: %w", r.cfg.Name, err, errdefs.ErrUnavailable)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}

// ask fills in what `<runtime> features` says. A runtime without that verb is used as one of OCI 1.0.
func (r *Runtime) queryFeatures(ctx context.Context, f *oci.Features) {
	out, err := r.runRuntime(ctx, nil, "features")
	if err != nil {
		// Read-only recursion came to crun with 1.4, the features verb with 1.9.
		f.RecursiveReadOnly = atLeast(f.Version, "crun version ", "1.4") && driver.KernelRecursiveReadOnly()
		return
	}
	said := parseFeatures(out)
	if said.OCIVersionMax != "" {
		f.OCIVersion = said.OCIVersionMax
	}
	f.MountOptions = said.MountOptions
	if f.OwnKernel { // what it says of mounts is true; what this kernel can do does not matter
		f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro")
		return
	}
	f.RecursiveReadOnly = slices.Contains(said.MountOptions, "rro") && driver.KernelRecursiveReadOnly()
	f.UserNamespaces = supportsIDMap(said) && driver.KernelIDMap(r.cfg.RunDir)
}

// parseFeatures reads what can be read: unknown fields and an absent or wrong one never make the handler
// useless.
func parseFeatures(b []byte) features.Features {
	var f features.Features
	_ = json.Unmarshal(b, &f)
	return f
}

// idmaps tells whether the runtime says that it can map the ids of mounts and create user namespaces.
func supportsIDMap(f features.Features) bool {
	if f.Linux == nil || f.Linux.MountExtensions == nil || f.Linux.MountExtensions.IDMap == nil {
		return false
	}
	enabled := f.Linux.MountExtensions.IDMap.Enabled
	return enabled != nil && *enabled && (f.Linux.Namespaces == nil || slices.Contains(f.Linux.Namespaces, "user"))
}

// checkStandIn refuses a runtime with a kernel of its own in a podd that was built without its stand-in.
func (r *Runtime) checkInitProxy(version string) error {
	if ownKernel(version) && r.cfg.InitProxy == "" {
		return fmt.Errorf("this podd was built without its stand-in program, which %q needs: build it with make: %w", version, errdefs.ErrUnavailable)
	}
	return nil
}

// ownKernel tells from its version whether a runtime runs containers under a kernel of its own: gVisor's does.
func ownKernel(version string) bool { return strings.HasPrefix(version, "runsc ") }

// checkMonitor refuses a conmon that lacks flags used here.
func checkMonitor(version string) error {
	if !atLeast(version, "conmon version ", conmon.MinVersion) {
		return fmt.Errorf("%q is too old, conmon %s is needed: %w", version, conmon.MinVersion, errdefs.ErrUnavailable)
	}
	return nil
}

// atLeast compares "<prefix>1.2.3-whatever" with a version, by its numbers.
func atLeast(version, prefix, least string) bool {
	rest, ok := strings.CutPrefix(version, prefix)
	if !ok {
		return false
	}
	have, want := numbers(rest), numbers(least)
	for i := range want {
		if have[i] != want[i] {
			return have[i] > want[i]
		}
	}
	return true
}

// numbers are the leading numbers of a version, zeros where there are none.
func numbers(version string) (n [3]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		end := strings.IndexFunc(part, func(c rune) bool { return c < '0' || c > '9' })
		if end < 0 {
			end = len(part)
		}
		n[i], _ = strconv.Atoi(part[:end])
	}
	return n
}
