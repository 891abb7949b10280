package server

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What podd cannot do yet is said here, one line per RPC, and nowhere else.

func unimplemented(sentence string) error {
	return fmt.Errorf("%w: %s", errdefs.ErrNotImplemented, sentence)
}

const (
	noStats       = "podd does not measure resource usage yet"
	noMetrics     = "podd does not export container metrics yet"
	noPodResize   = "podd does not resize pods yet: the kubelet resizes the pod's cgroup by itself"
	noCheckpoints = "podd does not checkpoint and restore yet"
)

// ContainerStats is not implemented yet.
func (s *Server) ContainerStats(context.Context, *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	return nil, unimplemented(noStats)
}

// ListContainerStats is not implemented yet.
func (s *Server) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return nil, unimplemented(noStats)
}

// StreamContainerStats is not implemented yet.
func (s *Server) StreamContainerStats(*cri.StreamContainerStatsRequest, grpc.ServerStreamingServer[cri.StreamContainerStatsResponse]) error {
	return unimplemented(noStats)
}

// PodSandboxStats is not implemented yet.
func (s *Server) PodSandboxStats(context.Context, *cri.PodSandboxStatsRequest) (*cri.PodSandboxStatsResponse, error) {
	return nil, unimplemented(noStats)
}

// ListPodSandboxStats is not implemented yet.
func (s *Server) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return nil, unimplemented(noStats)
}

// StreamPodSandboxStats is not implemented yet.
func (s *Server) StreamPodSandboxStats(*cri.StreamPodSandboxStatsRequest, grpc.ServerStreamingServer[cri.StreamPodSandboxStatsResponse]) error {
	return unimplemented(noStats)
}

// ListMetricDescriptors is not implemented yet.
func (s *Server) ListMetricDescriptors(context.Context, *cri.ListMetricDescriptorsRequest) (*cri.ListMetricDescriptorsResponse, error) {
	return nil, unimplemented(noMetrics)
}

// ListPodSandboxMetrics is not implemented yet.
func (s *Server) ListPodSandboxMetrics(context.Context, *cri.ListPodSandboxMetricsRequest) (*cri.ListPodSandboxMetricsResponse, error) {
	return nil, unimplemented(noMetrics)
}

// StreamPodSandboxMetrics is not implemented yet.
func (s *Server) StreamPodSandboxMetrics(*cri.StreamPodSandboxMetricsRequest, grpc.ServerStreamingServer[cri.StreamPodSandboxMetricsResponse]) error {
	return unimplemented(noMetrics)
}

// UpdatePodSandboxResources is not implemented yet.
func (s *Server) UpdatePodSandboxResources(context.Context, *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	return nil, unimplemented(noPodResize)
}

// CheckpointContainer is not implemented yet.
func (s *Server) CheckpointContainer(context.Context, *cri.CheckpointContainerRequest) (*cri.CheckpointContainerResponse, error) {
	return nil, unimplemented(noCheckpoints)
}

// CheckpointPod is not implemented yet.
func (s *Server) CheckpointPod(context.Context, *cri.CheckpointPodRequest) (*cri.CheckpointPodResponse, error) {
	return nil, unimplemented(noCheckpoints)
}

// RestorePod is not implemented yet.
func (s *Server) RestorePod(context.Context, *cri.RestorePodRequest) (*cri.RestorePodResponse, error) {
	return nil, unimplemented(noCheckpoints)
}
