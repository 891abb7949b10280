package server

import (
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

func podState(s record.PodState) cri.PodSandboxState {
	if s == record.PodReady {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// podItem is a pod in a list; fixed is the encoding of fixedPodItem, nil when there is none.
func podItem(p Pod, fixed []byte) *cri.PodSandbox {
	item := &cri.PodSandbox{}
	if fixed == nil {
		item = fixedPodItem(p.Record)
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

func podStatus(p Pod) *cri.PodSandboxStatus {
	cfg := p.Record.Config
	options := cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options == nil {
		options = &cri.NamespaceOption{} // POD for all, the meaning of an absent message
	}
	return &cri.PodSandboxStatus{
		Id:             p.Record.ID,
		Metadata:       cfg.GetMetadata(),
		State:          podState(p.Status.State),
		CreatedAt:      p.Record.CreatedAt.UnixNano(),
		Network:        podNetwork(p.Status.IPs),
		Linux:          &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: options}},
		Labels:         cfg.GetLabels(),
		Annotations:    cfg.GetAnnotations(),
		RuntimeHandler: p.Record.RequestedHandler,
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
func (s *Server) podInfo(p Pod, containers []Container) map[string]any {
	info := map[string]any{
		"pid":            podPid(p, containers),
		"state":          p.Status.State,
		"reason":         p.Status.Reason,
		"netns":          p.Record.Netns,
		"bootID":         p.Record.BootID,
		"runtimeHandler": p.Record.RequestedHandler,
		"config":         message(p.Record.Config),
		"operations":     operations(p.Operations),
	}
	if s.deps.PodSpec == nil {
		return info
	}
	spec, err := s.deps.PodSpec(p.Record)
	if err != nil {
		info["runtimeSpecError"] = err.Error()
		return info
	}
	info["runtimeSpec"] = withoutEnv(spec)
	return info
}

// podPid returns a process in the pod's namespaces: the infra container's, else that of a running container; 0 if there
// is none.
func podPid(p Pod, containers []Container) int {
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

// operations returns the recent operations of a pod or container; list may be nil.
func operations(list func() []operation.Operation) []operation.Operation {
	if list == nil {
		return nil
	}
	return list()
}
