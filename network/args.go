package network

import "math"

// ifName is the name of the pod's interface.
const ifName = "eth0"

// cniArgs returns the pairs of CNI_ARGS that every Kubernetes runtime passes; r has been validated.
func (r Request) cniArgs() [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"}, // plugins refuse unknown names without it
		{"K8S_POD_NAMESPACE", r.PodNamespace},
		{"K8S_POD_NAME", r.PodName},
		{"K8S_POD_INFRA_CONTAINER_ID", r.PodID},
		{"K8S_POD_UID", r.PodUID},
	}
}

// capabilities returns the arguments for plugins that declare the capability (CNI conventions, "capabilities").
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

// bandwidthArgs returns rates in bits per second. The bandwidth plugin refuses a rate without a burst; the burst is the
// largest that it accepts, in bits, as in the kubelet's former network code.
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
