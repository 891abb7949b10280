package server

import (
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

func podState(s record.PodState) cri.PodSandboxState {
	if s == record.PodReady {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// podItem is a pod in a list; fixed is the encoding of fixedPodItem, nil when there is none.
func podItem(p record.PodView, fixed []byte) *cri.PodSandbox {
	item := &cri.PodSandbox{}
	if fixed == nil {
		item = fixedPodItem(p.Pod)
	}
	item.ProtoReflect().SetUnknown(fixed)
	item.State = podState(p.Status.State)
	return item
}

// fixedPodItem is the part of podItem that never changes.
func fixedPodItem(r *record.Pod) *cri.PodSandbox {
	return &cri.PodSandbox{
		Id:             r.ID,
		Metadata:       r.Config.GetMetadata(),
		CreatedAt:      r.CreatedAt.UnixNano(),
		Labels:         r.Config.GetLabels(),
		Annotations:    r.Config.GetAnnotations(),
		RuntimeHandler: r.RequestedHandler,
	}
}

func podStatus(p record.PodView) *cri.PodSandboxStatus {
	cfg := p.Config
	options := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options == nil {
		options = &cri.NamespaceOption{} // POD for all, the meaning of an absent message
	}
	return &cri.PodSandboxStatus{
		Id:             p.ID,
		Metadata:       cfg.GetMetadata(),
		State:          podState(p.Status.State),
		CreatedAt:      p.CreatedAt.UnixNano(),
		Network:        podNetwork(p.Status.IPs),
		Linux:          &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: options}},
		Labels:         cfg.GetLabels(),
		Annotations:    cfg.GetAnnotations(),
		RuntimeHandler: p.RequestedHandler,
	}
}

// podNetwork never returns nil: the kubelet logs a warning for nil, also for pods on the host network.
func podNetwork(ips []string) *cri.PodSandboxNetworkStatus {
	n := &cri.PodSandboxNetworkStatus{}
	for i, ip := range ips {
		if i == 0 {
			n.Ip = ip
		} else {
			n.AdditionalIps = append(n.AdditionalIps, &cri.PodIP{Ip: ip})
		}
	}
	return n
}

// podInfo is the verbose part of a pod's status. A pod's config has no field for secrets. Tools enter the pod by the
// pid, or by the namespaces in runtimeSpec.
func (s *Server) podInfo(p record.PodView, containers []record.ContainerView) map[string]any {
	config := proto.CloneOf(p.Config)
	config.Linux = p.Linux()
	info := map[string]any{
		"pid":            podPid(p, containers),
		"state":          p.Status.State,
		"reason":         p.Status.Reason,
		"netns":          p.Netns,
		"bootID":         p.BootID,
		"runtimeHandler": p.RequestedHandler,
		"config":         message(config),
		"operations":     s.deps.Engine.LastOperations(p.ID),
	}
	spec, err := s.deps.PodSpec(p.Pod)
	if err != nil {
		info["runtimeSpecError"] = err.Error()
		return info
	}
	info["runtimeSpec"] = withoutEnv(spec)
	return info
}

// podPid returns a process in the pod's namespaces: the infra container's, else that of a running container; 0 if there
// is none.
func podPid(p record.PodView, containers []record.ContainerView) int {
	if p.Status.Infra.Pid != 0 {
		return p.Status.Infra.Pid
	}
	for _, c := range containers {
		if c.Status.State == record.ContainerRunning {
			return c.Status.Process.Pid
		}
	}
	return 0
}
