package server

import (
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// matchPod reports whether the pod matches all fields of the filter; ids may be prefixes, as crictl sends them.
func matchPod(f *cri.PodSandboxFilter, p record.PodView) bool {
	return strings.HasPrefix(p.ID, f.GetId()) &&
		(f.GetState() == nil || f.GetState().GetState() == podState(p.Status.State)) &&
		matchLabels(f.GetLabelSelector(), p.Config.GetLabels())
}

func matchContainer(f *cri.ContainerFilter, c record.ContainerView) bool {
	return strings.HasPrefix(c.ID, f.GetId()) &&
		strings.HasPrefix(c.PodID, f.GetPodSandboxId()) &&
		(f.GetState() == nil || f.GetState().GetState() == containerState(c.Status.State)) &&
		matchLabels(f.GetLabelSelector(), c.Config.GetLabels())
}

func matchLabels(selector, labels map[string]string) bool {
	for k, want := range selector {
		if got, ok := labels[k]; !ok || got != want {
			return false
		}
	}
	return true
}
