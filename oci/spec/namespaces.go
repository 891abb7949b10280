package spec

import (
	"path"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// namespaces sets every namespace except those that the container shares with the node.
func (b *builder) namespaces() error {
	ns := b.in.Namespaces
	for _, n := range []struct {
		kind specs.LinuxNamespaceType
		from string
	}{
		{specs.PIDNamespace, ns.PID},
		{specs.NetworkNamespace, ns.Net},
		{specs.IPCNamespace, ns.IPC},
		{specs.UTSNamespace, ns.UTS},
	} {
		if err := b.namespace(n.kind, n.from); err != nil {
			return err
		}
	}
	b.add(specs.MountNamespace, "")
	if b.cgroupNamespace() {
		b.add(specs.CgroupNamespace, "")
	}
	if ns.UTS == "" || b.in.Handler.OwnKernel {
		b.spec.Hostname = b.in.Pod.GetHostname() // on the host's kernel a joined UTS namespace has its name already
	}
	return b.userNamespace()
}

// cgroupNamespace reports whether the container gets a cgroup namespace, which hides the node's cgroups. As in every
// runtime not on cgroup v1, where the mounts hide them, and not for privileged containers, which may be node agents
// that read the whole tree.
func (b *builder) cgroupNamespace() bool { return b.in.Host.CgroupV2 && !b.privileged }

func (b *builder) namespace(kind specs.LinuxNamespaceType, from string) error {
	switch {
	case from == Host:
		return nil
	case from != "" && !path.IsAbs(from):
		return invalid("%q is not the path of a %s namespace", from, kind)
	}
	b.add(kind, from)
	return nil
}

func (b *builder) add(kind specs.LinuxNamespaceType, path string) {
	b.spec.Linux.Namespaces = append(b.spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: path})
}

// userNamespace joins the pod's user namespace; "" and Host both mean the node's, because the CRI has no user namespace
// of a single container. The mappings belong to the namespace: config.json may have a path or mappings (given both,
// runc writes a warning to the container's log).
func (b *builder) userNamespace() error {
	ns := b.in.Namespaces
	if !b.userns() {
		return nil
	}
	switch {
	case !b.in.Handler.UserNamespaces:
		return unsupported("this runtime handler cannot run containers in a user namespace")
	case len(ns.UIDs) == 0 || len(ns.GIDs) == 0:
		return invalid("the user namespace has no id mappings")
	}
	return b.namespace(specs.UserNamespace, ns.User)
}
