package nri

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/spec"
)

// check refuses changes that the CRI could not request either, or that would be lost.
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
	score, least := adj.GetLinux().GetOomScoreAdj(), int64(c.Facts.OOMScoreAdjMin)
	if v := score.GetValue(); score != nil && (v < least || v > 1000) {
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
			return invalid("linux.devices", "%s: the type %q must be b, c, u or p", to, d.GetType())
		}
	}
	return nil
}

// checkNamespaces refuses the namespaces on which podd's own mounts and id mappings depend.
func checkNamespaces(_ Creation, adj *api.ContainerAdjustment) error {
	known := []string{"network", "pid", "ipc", "uts", "time"}
	for _, n := range adj.GetLinux().GetNamespaces() {
		if kind, _ := n.IsMarkedForRemoval(); !slices.Contains(known, kind) {
			return invalid("linux.namespaces", "%q cannot be changed, only %s", kind, strings.Join(known, ", "))
		}
	}
	return nil
}

// checkHandler refuses fields that would be lost: those that the handler's runtime would ignore, and those that a
// restored container has from its checkpoint.
func checkHandler(c Creation, adj *api.ContainerAdjustment) error {
	linux := adj.GetLinux()
	process := map[string]bool{
		"args": len(adj.GetArgs()) > 0, "env": len(adj.GetEnv()) > 0, "rlimits": len(adj.GetRlimits()) > 0,
		"mounts": len(adj.GetMounts()) > 0,
	}
	cgroup := map[string]bool{
		"hooks": len(allHooks(adj.GetHooks())) > 0, "linux.rdt": linux.GetRdt() != nil,
		"linux.resources": linux.GetResources() != nil,
	}
	kernel := map[string]bool{
		"CDI_devices": len(adj.GetCDIDevices()) > 0, "linux.devices": len(linux.GetDevices()) > 0,
		"linux.net_devices": len(linux.GetNetDevices()) > 0, "linux.namespaces": len(linux.GetNamespaces()) > 0,
		"linux.sysctl": len(linux.GetSysctl()) > 0, "linux.seccomp_policy": linux.GetSeccompPolicy() != nil,
		"linux.scheduler": linux.GetScheduler() != nil, "linux.io_priority": linux.GetIoPriority() != nil,
		"linux.memory_policy": linux.GetMemoryPolicy() != nil, "linux.oom_score_adj": linux.GetOomScoreAdj() != nil,
	}
	if c.Handler.OwnKernel {
		const why = "the runtime handler has its own kernel, to which it does not apply"
		if err := refuse(why, cgroup, kernel); err != nil {
			return err
		}
	}
	if c.Container.Restored {
		const why = "the container continues from a checkpoint, which has it already"
		if err := refuse(why, process, kernel); err != nil {
			return err
		}
	}
	return checkVersion(c.Spec.Version, linux)
}

// refuse returns an error that names the first of the fields that is set.
func refuse(why string, fields ...map[string]bool) error {
	for _, set := range fields {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			if set[name] {
				return fmt.Errorf("%w: %s: %s", errdefs.ErrFailedPrecondition, name, why)
			}
		}
	}
	return nil
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
