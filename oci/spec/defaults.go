package spec

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Defaults are the node's settings for containers. They apply where neither the CRI nor the image sets a value.
type Defaults struct {
	// Rlimits are the limits of the process. Those that are not listed are podd's own.
	Rlimits []specs.POSIXRlimit
	// Capabilities (CAP_...) are those of a container that requests none.
	Capabilities []string
	// Env are variables, NAME=value. Those of the image and of the container override them.
	Env []string
	// MinGoMaxProcs is the least value of GOMAXPROCS of containers that request CPU and have no limit; 0: do not set it.
	MinGoMaxProcs int
	// PidsLimit is the maximal number of tasks of a container; 0 or less: no limit.
	PidsLimit int64
	// ReadOnly makes every root filesystem read-only, with an empty tmpfs on scratchPaths.
	ReadOnly bool
	// DeviceOwnership gives requested devices to the container's run_as_user and run_as_group, unless these are 0.
	DeviceOwnership bool
	// Umask is the file mode creation mask of the process, nil for the runtime's.
	Umask *uint32
	// Mounts are further mounts, except where podd or the container mounts something.
	Mounts []specs.Mount
	// Hooks are run by the runtime for every container, nil for none.
	Hooks *specs.Hooks
	// BlockIO and Rdma are limits that the CRI has no field for, nil for none.
	BlockIO *specs.LinuxBlockIO
	Rdma    map[string]specs.LinuxRdma
}

// WithBase returns d with what base, the base_runtime_spec of a handler, sets. Base must be checked, see CheckBase.
func (d Defaults) WithBase(base *specs.Spec) Defaults {
	if base == nil {
		return d
	}
	d.Mounts, d.Hooks = base.Mounts, base.Hooks
	if base.Root != nil && base.Root.Readonly {
		d.ReadOnly = true
	}
	if p := base.Process; p != nil {
		d.Env = slices.Concat(d.Env, p.Env)
		d.Rlimits = mergeRlimits(d.Rlimits, p.Rlimits)
		d.Umask = p.User.Umask
		if p.Capabilities != nil {
			d.Capabilities = p.Capabilities.Bounding
		}
	}
	if base.Linux != nil && base.Linux.Resources != nil {
		r := base.Linux.Resources
		d.BlockIO, d.Rdma = r.BlockIO, r.Rdma
		if r.Pids != nil && r.Pids.Limit != nil {
			d.PidsLimit = *r.Pids.Limit
		}
	}
	return d
}

func mergeRlimits(list, over []specs.POSIXRlimit) []specs.POSIXRlimit {
	out := slices.DeleteFunc(slices.Clone(list), func(l specs.POSIXRlimit) bool {
		return slices.ContainsFunc(over, func(o specs.POSIXRlimit) bool { return o.Type == l.Type })
	})
	return append(out, over...)
}

// CheckBase validates the base_runtime_spec of a handler. It rejects fields that podd always takes from the pod and
// would override silently: an operator who sets a seccomp profile there relies on it.
func CheckBase(base *specs.Spec) error {
	var errs []error
	refuse := func(set bool, field, why string) {
		if set {
			errs = append(errs, fmt.Errorf("%s has no effect: %s", field, why))
		}
	}
	if p := base.Process; p != nil {
		refuse(p.ApparmorProfile != "", "process.apparmorProfile", "podd sets it from the pod's security context")
		refuse(p.SelinuxLabel != "", "process.selinuxLabel", "podd sets it from the pod's security context")
		refuse(p.OOMScoreAdj != nil, "process.oomScoreAdj", "podd sets it from the container's resources")
		errs = append(errs, checkBaseProcess(p)...)
	}
	if l := base.Linux; l != nil {
		refuse(l.Seccomp != nil, "linux.seccomp", "podd sets it from the container's security context")
		refuse(l.MountLabel != "", "linux.mountLabel", "podd sets it from the pod's security context")
		refuse(len(l.UIDMappings)+len(l.GIDMappings) > 0, "linux.uidMappings", "podd sets it from the pod")
		refuse(len(l.Sysctl) > 0, "linux.sysctl", "use default_sysctls")
		refuse(len(l.Devices) > 0, "linux.devices", "use CDI")
		refuse(l.IntelRdt != nil, "linux.intelRdt", "podd does not support it")
	}
	refuse(len(base.Annotations) > 0, "annotations", "use default_annotations")
	for _, m := range base.Mounts {
		if !path.IsAbs(m.Destination) {
			errs = append(errs, fmt.Errorf("mounts: %q is not an absolute path", m.Destination))
		}
	}
	return errors.Join(errs...)
}

func checkBaseProcess(p *specs.Process) []error {
	errs := []error{CheckEnv(p.Env), CheckRlimits(p.Rlimits)}
	if p.Capabilities != nil {
		_, err := Capabilities(p.Capabilities.Bounding)
		errs = append(errs, err)
	}
	return errs
}

// CheckEnv reports an entry that is not NAME=value.
func CheckEnv(env []string) error {
	for i, kv := range env {
		if strings.Index(kv, "=") < 1 {
			return invalid("variable %d, %q, is not NAME=value", i, kv)
		}
		if err := checkText(fmt.Sprintf("variable %d", i), kv); err != nil {
			return err
		}
	}
	return nil
}

// rlimitNames are the limits of getrlimit(2) in config.json.
var rlimitNames = []string{
	"RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_LOCKS", "RLIMIT_MEMLOCK",
	"RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_RSS", "RLIMIT_RTPRIO", "RLIMIT_RTTIME",
	"RLIMIT_SIGPENDING", "RLIMIT_STACK",
}

// CheckRlimits reports a limit that does not exist, is there twice, or is above its hard limit.
func CheckRlimits(list []specs.POSIXRlimit) error {
	seen := map[string]bool{}
	for _, l := range list {
		switch {
		case !slices.Contains(rlimitNames, l.Type):
			return invalid("%q is not a resource limit of getrlimit(2)", l.Type)
		case seen[l.Type]:
			return invalid("%s is set twice", l.Type)
		case l.Soft > l.Hard:
			return invalid("the soft limit %d of %s is above the hard limit %d", l.Soft, l.Type, l.Hard)
		}
		seen[l.Type] = true
	}
	return nil
}

// Capabilities returns the names as in config.json, CAP_NET_RAW for "net_raw", in the order of their numbers.
func Capabilities(names []string) ([]string, error) {
	known := knownCapabilities()
	list, err := capabilityNames(names, known)
	if err != nil {
		return nil, err
	}
	if slices.Contains(list, all) {
		return nil, invalid("%q is not a Linux capability: name those that containers get", all)
	}
	return keep(known, func(c string) bool { return slices.Contains(list, c) }), nil
}

// scratchPaths are directories that programs expect to be writable although the root filesystem is not.
var scratchPaths = []string{"/run", "/tmp", "/var/tmp"}

// readOnlyRoot reports whether the root filesystem is read-only.
func (b *builder) readOnlyRoot() bool { return b.sc.GetReadonlyRootfs() || b.in.Defaults.ReadOnly }

// nodeMounts returns the mounts that the node's configuration adds, except at the destinations of list.
func (b *builder) nodeMounts(list []specs.Mount) []specs.Mount {
	d := b.in.Defaults
	wanted := slices.Clone(d.Mounts)
	if d.ReadOnly && !b.sc.GetReadonlyRootfs() {
		for _, p := range scratchPaths {
			wanted = append(wanted, specs.Mount{
				Destination: p, Type: "tmpfs", Source: "tmpfs",
				Options: []string{"nosuid", "nodev", "noexec", "mode=" + scratchMode(p), "tmpcopyup"},
			})
		}
	}
	taken := map[string]bool{}
	for _, m := range list {
		taken[m.Destination] = true
	}
	return slices.DeleteFunc(wanted, func(m specs.Mount) bool { return taken[path.Clean(m.Destination)] })
}

func scratchMode(p string) string {
	if p == "/run" {
		return "755"
	}
	return "1777"
}

// defaults sets what only the node's configuration has.
func (b *builder) defaults() error {
	d := b.in.Defaults
	b.spec.Process.Rlimits = b.rlimits()
	b.spec.Process.User.Umask = d.Umask
	b.spec.Root.Readonly = b.readOnlyRoot()
	if d.Hooks != nil {
		b.spec.Hooks = cloneHooks(*d.Hooks)
	}
	b.limitDefaults(b.spec.Linux.Resources)
	return nil
}

// rlimits returns the limits, lowered to those that podd may set: with more, every container of the node would fail.
func (b *builder) rlimits() []specs.POSIXRlimit {
	out := clone(b.in.Defaults.Rlimits)
	for i, l := range out {
		if most, bounded := b.in.Host.RlimitMax[l.Type]; bounded {
			out[i].Soft, out[i].Hard = min(l.Soft, most), min(l.Hard, most)
		}
	}
	return out
}

// cloneHooks copies the lists: CDI and hook directories append to them.
func cloneHooks(h specs.Hooks) *specs.Hooks {
	return &specs.Hooks{
		//lint:ignore SA1019 files for old runtimes have it
		Prestart: clone(h.Prestart), CreateRuntime: clone(h.CreateRuntime), CreateContainer: clone(h.CreateContainer),
		StartContainer: clone(h.StartContainer), Poststart: clone(h.Poststart), Poststop: clone(h.Poststop),
	}
}

// limitDefaults adds the limits that the CRI has no field for. A pids.max among the unified ones takes precedence.
func (b *builder) limitDefaults(r *specs.LinuxResources) {
	d := b.in.Defaults
	if _, own := r.Unified["pids.max"]; d.PidsLimit > 0 && !own {
		r.Pids = &specs.LinuxPids{Limit: new(d.PidsLimit)}
	}
	r.BlockIO, r.Rdma = d.BlockIO, maps.Clone(d.Rdma)
}

// owned returns the requested devices with the owner of the container's security context, if the node's configuration
// wants that. 0 keeps the owner that the device has on the node, as in containerd and CRI-O.
func (b *builder) owned(devices []Device) []Device {
	if !b.in.Defaults.DeviceOwnership {
		return devices
	}
	out := slices.Clone(devices)
	for i := range out {
		if uid := b.sc.GetRunAsUser().GetValue(); uid > 0 {
			out[i].Node.UID = new(uint32(uid))
		}
		if gid := b.sc.GetRunAsGroup().GetValue(); gid > 0 {
			out[i].Node.GID = new(uint32(gid))
		}
	}
	return out
}
