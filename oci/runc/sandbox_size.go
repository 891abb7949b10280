package runc

import (
	"path/filepath"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
)

// A runtime with its own kernel makes the machine as large as the limits of the cgroup of its first container. These
// are set to the pod's before that, and lifted afterwards: the cgroup of the pod limits the sandbox, also when it is
// resized. Errors leave the machine as large as the node.

// sizeSandbox returns the spec of an infra container with the limits of memory and CPU of the pod's cgroup, which is
// above its own. Other specs are returned as they are.
func (r *Runtime) sizeSandbox(req oci.CreateRequest) *specs.Spec {
	sandbox := r.sandboxOf(req)
	if sandbox == "" || isSubcontainer(req.ID, sandbox) || req.Spec == nil || req.Spec.Linux == nil {
		return req.Spec
	}
	limits, err := podLimits(req.Spec.Linux.CgroupsPath)
	if err != nil {
		return req.Spec
	}
	changed, linux, resources := *req.Spec, *req.Spec.Linux, specs.LinuxResources{}
	if linux.Resources != nil {
		resources = *linux.Resources
	}
	if limits.Memory != cgroups.Unlimited {
		resources.Memory = &specs.LinuxMemory{Limit: new(int64(limits.Memory))}
	}
	if limits.CPUQuota > 0 {
		cpu := specs.LinuxCPU{}
		if resources.CPU != nil {
			cpu = *resources.CPU
		}
		cpu.Quota, cpu.Period = new(limits.CPUQuota), new(limits.CPUPeriod)
		resources.CPU = &cpu
	}
	linux.Resources, changed.Linux = &resources, &linux
	return &changed
}

// podLimits returns the limits of the cgroup above a container's cgroupsPath.
func podLimits(cgroupsPath string) (cgroups.Limits, error) {
	parent := filepath.Dir(cgroupsPath)
	if slice, _, systemd := strings.Cut(cgroupsPath, ":"); systemd {
		parent = cgroups.SlicePath(slice)
	}
	tree, err := cgroups.Find()
	if err != nil {
		return cgroups.Limits{}, err
	}
	group, err := tree.At(parent)
	if err != nil {
		return cgroups.Limits{}, err
	}
	defer group.Close()
	return group.Limits()
}
