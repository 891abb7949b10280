// Package network gives a pod its network: it brings the loopback interface up and attaches the pod's pinned network
// namespace to a CNI network.
//
// It owns the attachment records (<state>/network/<pod>.json) and runs CNI plugins through libcni. It does not create
// network namespaces (sandbox/namespaces does) and does not know a pod's state. The sandbox engine is its only caller,
// except that the server calls SetPodCIDR.
//
// Plugins, their configuration and the records are not trusted until checked. No lock is held while a plugin runs: one
// that hangs affects only the pod it was called for.
package network

import "net/netip"

// Request describes a pod's attachment.
type Request struct {
	// PodID is the pod sandbox id. It is the CNI container id and part of every file name.
	PodID string
	// PodName, PodNamespace and PodUID become the CNI args K8S_POD_NAME, K8S_POD_NAMESPACE and K8S_POD_UID.
	PodName, PodNamespace, PodUID string
	// Netns is the path of the pinned network namespace.
	Netns string
	// ConfDir overrides the node's CNI configuration directory, for a handler with its own network.
	ConfDir string
	// Ports are the host ports to publish (capability portMappings).
	Ports []PortMapping
	// DNS is passed to plugins that declare the capability dns.
	DNS DNS
	// Bandwidth limits the pod's traffic (capability bandwidth); nil means unlimited.
	Bandwidth *Bandwidth
	// CgroupPath is the pod's cgroup (capability cgroupPath).
	CgroupPath string
}

// PortMapping publishes one container port on the host.
type PortMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"` // tcp, udp or sctp
	HostIP        string `json:"hostIP,omitempty"`
}

// DNS is the pod's resolver configuration.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Bandwidth is a pair of rate limits in bits per second, 0 meaning unlimited.
type Bandwidth struct {
	Ingress, Egress uint64
}

// Result is the result of CNI: the pod's addresses, the primary one first, and the name of their interface in the pod.
type Result struct {
	IPs       []netip.Addr
	Interface string
}
