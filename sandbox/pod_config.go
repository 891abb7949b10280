package sandbox

import (
	"cmp"
	"fmt"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/network"
)

// Conversion of a PodSandboxConfig to the requests of the mechanisms.

func namespaceOptions(c *cri.PodSandboxConfig) *cri.NamespaceOption {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func hostNetwork(c *cri.PodSandboxConfig) bool {
	return namespaceOptions(c).GetNetwork() == cri.NamespaceMode_NODE
}

// sharesPID reports whether the pod's containers share a PID namespace, which needs a process to hold it.
func sharesPID(c *cri.PodSandboxConfig) bool {
	return namespaceOptions(c).GetPid() == cri.NamespaceMode_POD
}

// userMappings returns the mappings of the pod's user namespace, nil when it shares the node's (KEP-127).
func userMappings(c *cri.PodSandboxConfig) (uids, gids []specs.LinuxIDMapping) {
	o := namespaceOptions(c).GetUsernsOptions()
	if o == nil || o.GetMode() != cri.NamespaceMode_POD {
		return nil, nil
	}
	return idMappings(o.GetUids()), idMappings(o.GetGids())
}

func idMappings(in []*cri.IDMapping) []specs.LinuxIDMapping {
	var out []specs.LinuxIDMapping
	for _, m := range in {
		out = append(out, specs.LinuxIDMapping{HostID: m.GetHostId(), ContainerID: m.GetContainerId(), Size: m.GetLength()})
	}
	return out
}

// podHostname returns the hostname in the pod's UTS namespace.
func podHostname(p *Pod) string {
	if h := p.Config.GetHostname(); h != "" {
		return h
	}
	return p.ID[:12]
}

// The annotations of Kubernetes for rate limits of the network.
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

func (e *Engine) networkRequest(p *Pod) (network.Request, error) {
	m, dns := p.Config.GetMetadata(), p.Config.GetDnsConfig()
	bandwidth, err := podBandwidth(p.Config.GetAnnotations())
	if err != nil {
		return network.Request{}, err
	}
	return network.Request{
		PodID: p.ID, PodName: m.GetName(), PodNamespace: m.GetNamespace(), PodUID: m.GetUid(),
		Netns: p.Netns, Ports: portMappings(p.Config.GetPortMappings()),
		DNS:        network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()},
		Bandwidth:  bandwidth,
		ConfDir:    e.cfg.Handlers[cmp.Or(p.Handler(), e.cfg.DefaultHandler)].CNIConfDir,
		CgroupPath: p.Config.GetLinux().GetCgroupParent(),
	}, nil
}

// portMappings returns the ports with a host port; the others are only documentation.
func portMappings(in []*cri.PortMapping) []network.PortMapping {
	protocols := map[cri.Protocol]string{cri.Protocol_TCP: "tcp", cri.Protocol_UDP: "udp", cri.Protocol_SCTP: "sctp"}
	var out []network.PortMapping
	for _, m := range in {
		if m.GetHostPort() > 0 {
			out = append(out, network.PortMapping{
				HostPort: m.GetHostPort(), ContainerPort: m.GetContainerPort(),
				Protocol: protocols[m.GetProtocol()], HostIP: m.GetHostIp(),
			})
		}
	}
	return out
}

func podBandwidth(annotations map[string]string) (*network.Bandwidth, error) {
	ingress, err := bitRate(annotations, ingressAnnotation)
	if err != nil {
		return nil, err
	}
	egress, err := bitRate(annotations, egressAnnotation)
	if err != nil {
		return nil, err
	}
	if ingress == 0 && egress == 0 {
		return nil, nil
	}
	return &network.Bandwidth{Ingress: ingress, Egress: egress}, nil
}

// The kubelet's own bounds for a bandwidth annotation, in bits per second.
const minRate, maxRate = 1000, 1_000_000_000_000_000

func bitRate(annotations map[string]string, key string) (uint64, error) {
	text, ok := annotations[key]
	if !ok {
		return 0, nil
	}
	rate, err := parseQuantity(text)
	if err != nil || rate < minRate || rate > maxRate {
		return 0, fmt.Errorf("%w: annotation %s: %q is not a bit rate between 1k and 1P",
			errdefs.ErrInvalidArgument, key, text)
	}
	return rate, nil
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
