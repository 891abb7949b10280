// Package convert turns CRI messages into the terms of the mechanisms, and the kernel's values back into CRI messages.
// It is pure: it never reads the machine or a record. The engine calls it.
package convert

import (
	"github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NamespaceOptions returns the pod's namespace options, which may be nil.
func NamespaceOptions(c *cri.PodSandboxConfig) *cri.NamespaceOption {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// HostNetwork reports whether the pod uses the node's network.
func HostNetwork(c *cri.PodSandboxConfig) bool {
	return NamespaceOptions(c).GetNetwork() == cri.NamespaceMode_NODE
}

// SharesPID reports whether the pod's containers share a PID namespace, which needs a process to hold it.
func SharesPID(c *cri.PodSandboxConfig) bool {
	return NamespaceOptions(c).GetPid() == cri.NamespaceMode_POD
}

// UserMappings returns the mappings of the pod's user namespace, nil when it shares the node's (KEP-127).
func UserMappings(c *cri.PodSandboxConfig) (uids, gids []specs.LinuxIDMapping) {
	o := NamespaceOptions(c).GetUsernsOptions()
	if o == nil || o.GetMode() != cri.NamespaceMode_POD {
		return nil, nil
	}
	return idMappings(o.GetUids()), idMappings(o.GetGids())
}

// HostOwner returns the ids on the host that are root in the pod's user namespace.
func HostOwner(c *cri.PodSandboxConfig) (uid, gid uint32) {
	uids, gids := UserMappings(c)
	return hostID(uids), hostID(gids)
}

func idMappings(in []*cri.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range in {
		out = append(out, specs.LinuxIDMapping{HostID: m.GetHostId(), ContainerID: m.GetContainerId(), Size: m.GetLength()})
	}
	return out
}

// hostID returns the host id of the pod's root user.
func hostID(mappings []specs.LinuxIDMapping) uint32 {
	for _, m := range mappings {
		if m.ContainerID == 0 {
			return m.HostID
		}
	}
	return 0
}

// UsesHost reports whether the pod shares a namespace with the node.
func UsesHost(config *cri.PodSandboxConfig) bool {
	return HostNetwork(config) || SharesProcesses(config)
}

// SharesProcesses reports whether the pod uses the node's PID or IPC namespace, which needs the node's kernel.
func SharesProcesses(config *cri.PodSandboxConfig) bool {
	o := NamespaceOptions(config)
	return o.GetPid() == cri.NamespaceMode_NODE || o.GetIpc() == cri.NamespaceMode_NODE
}

// NeedsHost reports whether a pod needs access to the node, which a handler with its own kernel does not give.
func NeedsHost(config *cri.PodSandboxConfig) bool {
	return config.GetLinux().GetSecurityContext().GetPrivileged() || UsesHost(config)
}
