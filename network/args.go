package network

import "math"

// ifName is the interface that CNI makes in a pod.
const ifName = "eth0"

// cniArgs are the pairs of CNI_ARGS that every Kubernetes runtime gives; r has been validated.
func (r Request) cniArgs() [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"}, // plugins refuse unknown names without it
		{"K8S_POD_NAMESPACE", r.PodNamespace},
		{"K8S_POD_NAME", r.PodName},
		{"K8S_POD_INFRA_CONTAINER_ID", r.PodID},
		{"K8S_POD_UID", r.PodUID},
	}
}

// capabilities are what plugins get that declare the capability (CNI conventions, "capabilities").
func (r Request) capabilities() map[string]any {
	c := map[string]any{}
	if len(r.Ports) > 0 {
		c["portMappings"] = r.Ports
	}
	if d := r.DNS; len(d.Servers)+len(d.Searches)+len(d.Options) > 0 {
		c["dns"] = d
	}
	if r.Bandwidth != nil {
		c["bandwidth"] = bandwidthArgs(*r.Bandwidth)
	}
	if r.CgroupPath != "" {
		c["cgroupPath"] = r.CgroupPath
	}
	return c
}

// bandwidthArgs writes rates in bits per second. A rate without a burst is refused by the bandwidth plugin; the burst
// is the largest it takes, in bits, as the kubelet's own network code had it.
func bandwidthArgs(b Bandwidth) map[string]uint64 {
	args := map[string]uint64{}
	if b.Ingress > 0 {
		args["ingressRate"], args["ingressBurst"] = b.Ingress, math.MaxInt32
	}
	if b.Egress > 0 {
		args["egressRate"], args["egressBurst"] = b.Egress, math.MaxInt32
	}
	return args
}
