package server

import (
	"context"
	"iter"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox answers from memory.
func (s *Server) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	if err := checkPodFilter(r.GetFilter()); err != nil {
		return nil, err
	}
	resp := &cri.ListPodSandboxResponse{}
	for p := range s.pods(r.GetFilter()) {
		resp.Items = append(resp.Items, p)
	}
	return resp, nil
}

// pods converts the pods that match the filter, one at a time.
func (s *Server) pods(f *cri.PodSandboxFilter) iter.Seq[*cri.PodSandbox] {
	return func(yield func(*cri.PodSandbox) bool) {
		pass := s.podCache.newPass()
		for p := range s.deps.Engine.Pods() {
			fixed := pass.encode(p.Pod, nil, func() proto.Message { return fixedPodItem(p.Pod) })
			if matchPod(f, p) && !yield(podItem(p, fixed)) {
				return
			}
		}
		pass.commit()
	}
}
