package nri

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/convert"
)

// apply changes c.Spec as the plugins ask, and returns the limits among that in the CRI's form, nil for none. The
// library's generator is not used: it leaves out memory limits other than the first, the error number of seccomp and
// classes without saying so, and sets a resource limit twice. Errors name the field.
func apply(c Creation, adj *api.ContainerAdjustment) (*cri.LinuxContainerResources, error) {
	if err := check(c, adj); err != nil {
		return nil, err
	}
	a := adjuster{c: c, s: c.Spec}
	a.annotations(adj.GetAnnotations())
	a.process(adj)
	a.hooks(adj.GetHooks())
	if err := a.cdi(adj.GetCDIDevices()); err != nil {
		return nil, err
	}
	a.mounts(adj.GetMounts())
	linux := adj.GetLinux()
	a.devices(linux.GetDevices())
	a.namespaces(linux.GetNamespaces())
	a.kernel(linux)
	a.rdt(linux.GetRdt())
	limits, err := a.resources(linux.GetResources())
	if err != nil {
		return nil, fmt.Errorf("linux.resources: %w", err)
	}
	if score := linux.GetOomScoreAdj(); score != nil {
		limits = convert.MergeResources(cmp.Or(limits, c.Container.Config.GetLinux().GetResources()), nil)
		limits.OomScoreAdj = score.GetValue()
	}
	return limits, nil
}

// adjuster changes one config.json.
type adjuster struct {
	c Creation
	s *specs.Spec
}

func (a adjuster) annotations(list map[string]string) {
	for key, value := range list {
		if name, remove := api.IsMarkedForRemoval(key); remove {
			delete(a.s.Annotations, name)
		}
		if _, remove := api.IsMarkedForRemoval(key); !remove {
			put(&a.s.Annotations, key, value)
		}
	}
}

// put sets a key of a map that may be nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// process sets the arguments, the environment and the limits of the process.
func (a adjuster) process(adj *api.ContainerAdjustment) {
	p := a.s.Process
	if args := adj.GetArgs(); len(args) > 0 {
		p.Args = slices.Clone(args)
	}
	for _, kv := range adj.GetEnv() {
		name, remove := kv.IsMarkedForRemoval()
		at := slices.IndexFunc(p.Env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		switch {
		case remove && at >= 0:
			p.Env = slices.Delete(p.Env, at, at+1)
		case !remove && at >= 0:
			p.Env[at] = kv.ToOCI()
		case !remove:
			p.Env = append(p.Env, kv.ToOCI())
		}
	}
	for _, l := range adj.GetRlimits() {
		limit := specs.POSIXRlimit{Type: l.GetType(), Hard: l.GetHard(), Soft: l.GetSoft()}
		at := slices.IndexFunc(p.Rlimits, func(have specs.POSIXRlimit) bool { return have.Type == limit.Type })
		if at >= 0 {
			p.Rlimits[at] = limit
		} else {
			p.Rlimits = append(p.Rlimits, limit)
		}
	}
}

func (a adjuster) hooks(h *api.Hooks) {
	if len(allHooks(h)) == 0 {
		return
	}
	if a.s.Hooks == nil {
		a.s.Hooks = &specs.Hooks{}
	}
	add := func(to *[]specs.Hook, list []*api.Hook) {
		for _, hook := range list {
			*to = append(*to, hook.ToOCI())
		}
	}
	//lint:ignore SA1019 plugins for old runtimes have it
	add(&a.s.Hooks.Prestart, h.GetPrestart())
	add(&a.s.Hooks.CreateRuntime, h.GetCreateRuntime())
	add(&a.s.Hooks.CreateContainer, h.GetCreateContainer())
	add(&a.s.Hooks.StartContainer, h.GetStartContainer())
	add(&a.s.Hooks.Poststart, h.GetPoststart())
	add(&a.s.Hooks.Poststop, h.GetPoststop())
}

func allHooks(h *api.Hooks) []*api.Hook {
	return slices.Concat(h.GetPrestart(), h.GetCreateRuntime(), h.GetCreateContainer(), h.GetStartContainer(),
		h.GetPoststart(), h.GetPoststop())
}

func (a adjuster) cdi(devices []*api.CDIDevice) error {
	if len(devices) == 0 {
		return nil
	}
	var names []string
	for _, d := range devices {
		names = append(names, d.GetName())
	}
	if err := a.c.InjectCDI(a.s, names); err != nil {
		return fmt.Errorf("CDI_devices: %w", err)
	}
	return nil
}

// mounts replaces the mounts at the same destinations. A mount comes after those above it in the tree.
func (a adjuster) mounts(list []*api.Mount) {
	for _, m := range list {
		to, remove := m.IsMarkedForRemoval()
		a.s.Mounts = slices.DeleteFunc(a.s.Mounts, func(have specs.Mount) bool { return have.Destination == to })
		if remove {
			continue
		}
		propagation := ""
		a.s.Mounts = append(a.s.Mounts, m.ToOCI(&propagation))
		a.propagate(propagation)
	}
	if len(list) > 0 {
		slices.SortStableFunc(a.s.Mounts, func(x, y specs.Mount) int {
			return strings.Count(x.Destination, "/") - strings.Count(y.Destination, "/")
		})
	}
}

// propagate raises the propagation of the root filesystem to what a mount needs.
func (a adjuster) propagate(mount string) {
	root := &a.s.Linux.RootfsPropagation
	if mount == "rshared" || mount == "rslave" && *root != "rshared" {
		*root = mount
	}
}

func (a adjuster) devices(list []*api.LinuxDevice) {
	l := a.s.Linux
	for _, d := range list {
		path, remove := d.IsMarkedForRemoval()
		l.Devices = slices.DeleteFunc(l.Devices, func(have specs.LinuxDevice) bool { return have.Path == path })
		if remove {
			continue
		}
		l.Devices = append(l.Devices, d.ToOCI())
		l.Resources.Devices = append(l.Resources.Devices, specs.LinuxDeviceCgroup{
			Allow: true, Type: d.GetType(), Major: new(d.GetMajor()), Minor: new(d.GetMinor()), Access: d.AccessString(),
		})
	}
}

func (a adjuster) namespaces(list []*api.LinuxNamespace) {
	for _, n := range list {
		kind, remove := n.IsMarkedForRemoval()
		a.s.Linux.Namespaces = slices.DeleteFunc(a.s.Linux.Namespaces, func(have specs.LinuxNamespace) bool {
			return string(have.Type) == kind
		})
		if !remove {
			a.s.Linux.Namespaces = append(a.s.Linux.Namespaces,
				specs.LinuxNamespace{Type: specs.LinuxNamespaceType(kind), Path: n.GetPath()})
		}
	}
}

// kernel sets what has one field each.
func (a adjuster) kernel(linux *api.LinuxContainerAdjustment) {
	l, p := a.s.Linux, a.s.Process
	if score := linux.GetOomScoreAdj(); score != nil {
		p.OOMScoreAdj = new(int(score.GetValue()))
	}
	if priority := linux.GetIoPriority(); priority != nil {
		p.IOPriority = priority.ToOCI()
	}
	if scheduler := linux.GetScheduler(); scheduler != nil {
		p.Scheduler = scheduler.ToOCI()
	}
	if policy := linux.GetMemoryPolicy(); policy != nil {
		l.MemoryPolicy = policy.ToOCI()
	}
	if policy := linux.GetSeccompPolicy(); policy != nil {
		l.Seccomp = seccomp(policy)
	}
	for key, value := range linux.GetSysctl() {
		if name, remove := api.IsMarkedForRemoval(key); remove {
			delete(l.Sysctl, name)
		} else {
			put(&l.Sysctl, key, value)
		}
	}
	for key, device := range linux.GetNetDevices() {
		if name, remove := api.IsMarkedForRemoval(key); remove {
			delete(l.NetDevices, name)
		} else {
			put(&l.NetDevices, key, device.ToOCI())
		}
	}
}

func seccomp(p *api.LinuxSeccomp) *specs.LinuxSeccomp {
	out := &specs.LinuxSeccomp{
		DefaultAction: specs.LinuxSeccompAction(p.GetDefaultAction()), ListenerPath: p.GetListenerPath(),
		ListenerMetadata: p.GetListenerMetadata(), Syscalls: api.ToOCILinuxSyscalls(p.GetSyscalls()),
	}
	if errno := p.GetDefaultErrno(); errno != nil {
		out.DefaultErrnoRet = new(uint(errno.GetValue()))
	}
	for _, arch := range p.GetArchitectures() {
		out.Architectures = append(out.Architectures, specs.Arch(arch))
	}
	for _, flag := range p.GetFlags() {
		out.Flags = append(out.Flags, specs.LinuxSeccompFlag(flag))
	}
	return out
}

func (a adjuster) rdt(r *api.LinuxRdt) {
	if r.GetRemove() {
		a.s.Linux.IntelRdt = nil
	}
	if r.GetClosId() == nil && r.GetSchemata() == nil && r.GetEnableMonitoring() == nil {
		return
	}
	if a.s.Linux.IntelRdt == nil {
		a.s.Linux.IntelRdt = &specs.LinuxIntelRdt{}
	}
	to := a.s.Linux.IntelRdt
	if id := r.GetClosId(); id != nil {
		to.ClosID = id.GetValue()
	}
	if schemata := r.GetSchemata(); schemata != nil {
		to.Schemata = slices.Clone(schemata.GetValue())
	}
	if on := r.GetEnableMonitoring(); on != nil {
		to.EnableMonitoring = on.GetValue()
	}
}

// resources sets limits as if the CRI's request had them, so that the same checks hold, and then those that the CRI has
// no field for.
func (a adjuster) resources(msg *api.LinuxResources) (*cri.LinuxContainerResources, error) {
	asked, err := splitResources(msg)
	if err != nil {
		return nil, err
	}
	l := a.s.Linux.Resources
	for _, d := range msg.GetDevices() {
		l.Devices = append(l.Devices, specs.LinuxDeviceCgroup{
			Allow: d.GetAllow(), Type: d.GetType(), Major: d.GetMajor().Get(), Minor: d.GetMinor().Get(), Access: d.GetAccess(),
		})
	}
	mergeRest(l, asked.Rest)
	if proto.Equal(asked.CRI, &cri.LinuxContainerResources{}) {
		return nil, nil
	}
	merged := convert.MergeResources(a.c.Container.Config.GetLinux().GetResources(), asked.CRI)
	limits, _, err := spec.Resources(merged, a.c.Facts)
	if err != nil {
		return nil, err
	}
	l.CPU, l.Memory, l.HugepageLimits, l.Unified = limits.CPU, limits.Memory, limits.HugepageLimits, limits.Unified
	mergeRest(l, asked.Rest)
	return merged, nil
}

// check refuses what the CRI would not be allowed either, and what would be lost.
func check(c Creation, adj *api.ContainerAdjustment) error {
	for _, f := range []func(Creation, *api.ContainerAdjustment) error{
		checkHandler, checkNames, checkProcess, checkMounts, checkDevices, checkNamespaces,
	} {
		if err := f(c, adj); err != nil {
			return err
		}
	}
	return nil
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", errdefs.ErrInvalidArgument, field, fmt.Sprintf(format, args...))
}

// checkNames refuses annotations that only podd writes, and a cgroup that podd would not find again.
func checkNames(_ Creation, adj *api.ContainerAdjustment) error {
	for key := range adj.GetAnnotations() {
		if name, _ := api.IsMarkedForRemoval(key); spec.ReservedAnnotation(name) {
			return invalid("annotations", "%q is reserved for podd", name)
		}
	}
	if path := adj.GetLinux().GetCgroupsPath(); path != "" {
		return invalid("linux.cgroups_path", "podd names the cgroups of containers: by the name it measures and ends them")
	}
	return nil
}

func checkProcess(c Creation, adj *api.ContainerAdjustment) error {
	if args := adj.GetArgs(); len(args) > 0 && args[0] == "" {
		return invalid("args", "the command is empty")
	}
	if err := spec.CheckTexts("args", adj.GetArgs()); err != nil {
		return err
	}
	var env []string
	for _, kv := range adj.GetEnv() {
		if name, remove := kv.IsMarkedForRemoval(); !remove {
			env = append(env, kv.ToOCI())
		} else if name == "" {
			return invalid("env", "a variable to remove has no name")
		}
	}
	if err := spec.CheckEnv(env); err != nil {
		return fmt.Errorf("env: %w", err)
	}
	var limits []specs.POSIXRlimit
	for _, l := range adj.GetRlimits() {
		limits = append(limits, specs.POSIXRlimit{Type: l.GetType(), Hard: l.GetHard(), Soft: l.GetSoft()})
	}
	if err := spec.CheckRlimits(limits); err != nil {
		return fmt.Errorf("rlimits: %w", err)
	}
	for _, l := range limits {
		if most, bounded := c.Facts.RlimitMax[l.Type]; bounded && l.Hard > most {
			return invalid("rlimits", "%s: %d is more than podd may set, which is %d", l.Type, l.Hard, most)
		}
	}
	least := int64(c.Facts.OOMScoreAdjMin)
	if v := adj.GetLinux().GetOomScoreAdj().GetValue(); v < least || v > 1000 {
		return invalid("linux.oom_score_adj", "%d is not between %d, the least that podd may set, and 1000", v, least)
	}
	return nil
}

func checkMounts(_ Creation, adj *api.ContainerAdjustment) error {
	for _, m := range adj.GetMounts() {
		to, remove := m.IsMarkedForRemoval()
		if to != path.Clean(to) || !path.IsAbs(to) || to == "/" {
			return invalid("mounts", "%q is not a clean absolute path below the root", to)
		}
		if remove {
			continue
		}
		texts := append([]string{m.GetSource(), m.GetType()}, m.GetOptions()...)
		if err := spec.CheckTexts("mounts: "+to, texts); err != nil {
			return err
		}
		bind := slices.Contains(texts, "bind") || slices.Contains(texts, "rbind")
		if bind && !path.IsAbs(m.GetSource()) {
			return invalid("mounts", "the source %q of the bind mount %s is not an absolute path", m.GetSource(), to)
		}
	}
	for _, hook := range allHooks(adj.GetHooks()) {
		if !path.IsAbs(hook.GetPath()) {
			return invalid("hooks", "%q is not an absolute path", hook.GetPath())
		}
	}
	return nil
}

func checkDevices(_ Creation, adj *api.ContainerAdjustment) error {
	for _, d := range adj.GetLinux().GetDevices() {
		to, remove := d.IsMarkedForRemoval()
		switch {
		case to != path.Clean(to) || !path.IsAbs(to) || to == "/":
			return invalid("linux.devices", "%q is not a clean absolute path", to)
		case !remove && !slices.Contains([]string{"b", "c", "u", "p"}, d.GetType()):
			return invalid("linux.devices", "%s: the type %q is none of b, c, u, p", to, d.GetType())
		}
	}
	for name, d := range adj.GetLinux().GetNetDevices() {
		if _, remove := api.IsMarkedForRemoval(name); !remove && d == nil {
			return invalid("linux.net_devices", "%q has no device", name)
		}
	}
	return nil
}

// checkNamespaces refuses the namespaces on which podd's own mounts and id mappings depend.
func checkNamespaces(_ Creation, adj *api.ContainerAdjustment) error {
	known := []string{"network", "pid", "ipc", "uts", "cgroup", "time"}
	for _, n := range adj.GetLinux().GetNamespaces() {
		if kind, _ := n.IsMarkedForRemoval(); !slices.Contains(known, kind) {
			return invalid("linux.namespaces", "%q cannot be changed, only %s", kind, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkHandler refuses fields that the handler's runtime would ignore.
func checkHandler(c Creation, adj *api.ContainerAdjustment) error {
	linux := adj.GetLinux()
	if c.Handler.OwnKernel {
		for field, set := range map[string]bool{
			"hooks": len(allHooks(adj.GetHooks())) > 0, "CDI_devices": len(adj.GetCDIDevices()) > 0,
			"linux.devices": len(linux.GetDevices()) > 0, "linux.net_devices": len(linux.GetNetDevices()) > 0,
			"linux.namespaces": len(linux.GetNamespaces()) > 0, "linux.sysctl": len(linux.GetSysctl()) > 0,
			"linux.seccomp_policy": linux.GetSeccompPolicy() != nil, "linux.scheduler": linux.GetScheduler() != nil,
			"linux.io_priority": linux.GetIoPriority() != nil, "linux.rdt": linux.GetRdt() != nil,
			"linux.memory_policy": linux.GetMemoryPolicy() != nil, "linux.oom_score_adj": linux.GetOomScoreAdj() != nil,
			"linux.resources": linux.GetResources() != nil,
		} {
			if set {
				return fmt.Errorf("%w: %s: the runtime handler has a kernel of its own, to which it does not apply",
					errdefs.ErrFailedPrecondition, field)
			}
		}
	}
	return checkVersion(c.Spec.Version, linux)
}

// checkVersion refuses fields that are newer than the version of config.json that the runtime reads.
func checkVersion(version string, linux *api.LinuxContainerAdjustment) error {
	for _, f := range []struct {
		field string
		set   bool
		minor int // of version 1 of the runtime specification
	}{
		{"linux.io_priority", linux.GetIoPriority() != nil, 1},
		{"linux.scheduler", linux.GetScheduler() != nil, 1},
		{"linux.net_devices", len(linux.GetNetDevices()) > 0, 3},
		{"linux.memory_policy", linux.GetMemoryPolicy() != nil, 3},
		{"linux.rdt.schemata", linux.GetRdt().GetSchemata() != nil, 3},
		{"linux.rdt.enable_monitoring", linux.GetRdt().GetEnableMonitoring() != nil, 3},
	} {
		if f.set && !spec.AtLeast(version, 1, f.minor) {
			return fmt.Errorf("%w: %s needs a runtime that knows version 1.%d of the runtime specification, this one knows %s",
				errdefs.ErrFailedPrecondition, f.field, f.minor, version)
		}
	}
	return nil
}
