package server

import (
	"context"
	"iter"
	"slices"
	"strings"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// ContainerStats measures one container. For an exited one it returns only the usage of the writable layer.
func (s *Server) ContainerStats(
	ctx context.Context, r *cri.ContainerStatsRequest,
) (*cri.ContainerStatsResponse, error) {
	if err := checkContainerID(r.GetContainerId()); err != nil {
		return nil, err
	}
	c, err := s.deps.Engine.Container(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	u, ok := s.deps.Engine.ContainerUsage(ctx, []string{c.ID}, usage.Want{})[c.ID]
	if !ok {
		u.Writable = s.deps.Engine.Writable(c.ID)
	}
	return &cri.ContainerStatsResponse{Stats: containerStats(c.Container, u)}, nil
}

// ListContainerStats measures the containers that have a process.
func (s *Server) ListContainerStats(
	ctx context.Context, r *cri.ListContainerStatsRequest,
) (*cri.ListContainerStatsResponse, error) {
	if err := checkContainerStatsFilter(r.GetFilter()); err != nil {
		return nil, err
	}
	return &cri.ListContainerStatsResponse{Stats: slices.Collect(s.containerStats(ctx, r.GetFilter()))}, nil
}

// StreamContainerStats is ListContainerStats without the limit on a message's size (KEP-5825).
func (s *Server) StreamContainerStats(
	r *cri.StreamContainerStatsRequest, out grpc.ServerStreamingServer[cri.StreamContainerStatsResponse],
) error {
	if err := checkContainerStatsFilter(r.GetFilter()); err != nil {
		return err
	}
	return sendBatches(s.containerStats(out.Context(), r.GetFilter()), func(items []*cri.ContainerStats) error {
		return out.Send(&cri.StreamContainerStatsResponse{ContainerStats: items})
	})
}

func checkContainerStatsFilter(f *cri.ContainerStatsFilter) error {
	c := newCheck()
	c.filterID("filter.id", f.GetId())
	c.filterID("filter.pod_sandbox_id", f.GetPodSandboxId())
	c.labels("filter.label_selector", f.GetLabelSelector())
	return c.err()
}

// containerStats measures the containers that match the filter.
func (s *Server) containerStats(ctx context.Context, f *cri.ContainerStatsFilter) iter.Seq[*cri.ContainerStats] {
	return func(yield func(*cri.ContainerStats) bool) {
		matching := func(yield func(record.ContainerView) bool) {
			for c := range s.deps.Engine.Containers() {
				if hasProcess(c) && matchContainerStats(f, c) && !yield(c) {
					return
				}
			}
		}
		measure := func(ids []string) map[string]usage.Container {
			return s.deps.Engine.ContainerUsage(ctx, ids, usage.Want{})
		}
		for c, u := range measureAll(slices.Collect(matching), func(c record.ContainerView) string { return c.ID }, measure) {
			if !yield(containerStats(c.Container, u)) {
				return
			}
		}
	}
}

// hasProcess reports whether the container has a process, started or not.
func hasProcess(c record.ContainerView) bool {
	return c.Status.State == record.ContainerCreated || c.Status.State == record.ContainerRunning
}

func matchContainerStats(f *cri.ContainerStatsFilter, c record.ContainerView) bool {
	return strings.HasPrefix(c.ID, f.GetId()) &&
		strings.HasPrefix(c.PodID, f.GetPodSandboxId()) &&
		matchLabels(f.GetLabelSelector(), c.Config.GetLabels())
}
