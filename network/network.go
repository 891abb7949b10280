// Package network gives a pod its network: it brings the loopback interface up and attaches
// the pod's pinned network namespace to a CNI network.
//
// It owns the attachment records (<state>/network/<pod>.json) and talks to CNI plugins through
// libcni. It never creates a network namespace (sandbox/namespaces does) and knows nothing of a
// pod's life. The sandbox engine is its only caller, but for SetPodCIDR, which the server calls.
//
// Plugins, their configuration and the records are taken for hostile until checked. No lock is held while a
// plugin runs: a hanging one harms the pod it was called for and nothing else.
package network

import "net/netip"

// Request says what a pod's attachment should look like.
type Request struct {
	// PodID is the pod sandbox id; every name on disk follows from it. It is the CNI container id.
	PodID string
	// PodName, PodNamespace and PodUID become the CNI args K8S_POD_NAME, K8S_POD_NAMESPACE and K8S_POD_UID.
	PodName, PodNamespace, PodUID string
	// Netns is the path of the pinned network namespace.
	Netns string
	// ConfDir overrides the node's CNI configuration directory, for a handler with its own network.
	ConfDir string
	// Ports are the host ports to publish (capability portMappings).
	Ports []PortMapping
	// DNS is passed to plugins that ask for it (capability dns).
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

// Result is what CNI answered: the pod's addresses, the primary one first, and the name of the
// interface that carries it inside the pod.
type Result struct {
	IPs       []netip.Addr
	Interface string
}
