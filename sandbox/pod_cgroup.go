package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/sandbox/usage"
)

// podCgroup returns the cgroup_parent of the kubelet's request for p as a path, "" when there is none.
func (e *Engine) podCgroup(p *Pod) string {
	parent := p.Config.GetLinux().GetCgroupParent()
	switch {
	case parent == "":
		return ""
	case e.node.SystemdCgroup:
		return cgroups.SlicePath(parent)
	}
	return path.Join("/", parent)
}

// cgroupsPath returns the OCI cgroupsPath of a new container of p, or of its infra container.
func (e *Engine) cgroupsPath(p *Pod, id string) (string, error) {
	parent := p.Config.GetLinux().GetCgroupParent()
	return spec.CgroupsPath(e.node.SystemdCgroup, parent, e.cfg.Load().CgroupPrefix, id)
}

// checkOwnCgroup returns errdefs.ErrFailedPrecondition for a cgroup_parent that is not the pod's alone: crictl and
// critest put all pods into one, such as system.slice. The kubelet creates one for each pod and names it by the pod's
// uid; any other is the pod's own as long as nothing else is in it.
func (e *Engine) checkOwnCgroup(p *Pod, g usage.Cgroup) error {
	if namedByUID(p, e.podCgroup(p)) {
		return nil
	}
	ids := []string{p.ID}
	for _, c := range e.store.containersOf(p) {
		ids = append(ids, c.ID)
	}
	only, err := g.Only(func(child string) bool {
		return slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(child, id) })
	})
	if err == nil && !only {
		err = fmt.Errorf("%w: cgroup %s holds more than pod sandbox %s", errdefs.ErrFailedPrecondition, g.Path(), p.ID)
	}
	return err
}

// namedByUID reports whether a cgroup is named by p's uid, as the kubelet does it: then it is p's alone.
func namedByUID(p *Pod, cgroup string) bool {
	uid, name := p.Config.GetMetadata().GetUid(), path.Base(cgroup)
	return len(uid) >= minUID && (strings.Contains(name, uid) || strings.Contains(name, strings.ReplaceAll(uid, "-", "_")))
}

// minUID is the length from which a pod's uid identifies the pod when it is part of a name.
const minUID = 8
