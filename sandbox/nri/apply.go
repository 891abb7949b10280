package nri

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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

// propagate raises the propagation of the root filesystem as far as a mount requires.
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

// kernel applies the adjustments that map to a single field.
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
	if class := msg.GetBlockioClass(); class != nil {
		l.BlockIO = nil // for a class without a name
		if class.GetValue() != "" {
			l.BlockIO, err = a.c.BlockIO(class.GetValue())
		}
		if err != nil {
			return nil, err
		}
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
