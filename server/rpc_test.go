package server

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// rpcTests has a test for every RPC that podd answers.
func rpcTests() map[string]func(*testing.T) {
	return map[string]func(*testing.T){
		"Version":                   testVersion,
		"Status":                    testStatus,
		"RuntimeConfig":             testRuntimeConfig,
		"UpdateRuntimeConfig":       testUpdateRuntimeConfig,
		"RunPodSandbox":             testRunPodSandbox,
		"StopPodSandbox":            testStopPodSandbox,
		"RemovePodSandbox":          testRemovePodSandbox,
		"PodSandboxStatus":          testPodSandboxStatus,
		"ListPodSandbox":            testListPodSandbox,
		"StreamPodSandboxes":        testStreamPodSandboxes,
		"PortForward":               testPortForward,
		"CreateContainer":           testCreateContainer,
		"StartContainer":            testStartContainer,
		"StopContainer":             testStopContainer,
		"RemoveContainer":           testRemoveContainer,
		"ListContainers":            testListContainers,
		"StreamContainers":          testStreamContainers,
		"GetContainerEvents":        testGetContainerEvents,
		"ContainerStatus":           testContainerStatus,
		"UpdateContainerResources":  testUpdateContainerResources,
		"ReopenContainerLog":        testReopenContainerLog,
		"ExecSync":                  testExecSync,
		"Exec":                      testExec,
		"Attach":                    testAttach,
		"ContainerStats":            testContainerStats,
		"ListContainerStats":        testListContainerStats,
		"StreamContainerStats":      testStreamContainerStats,
		"PodSandboxStats":           testPodSandboxStats,
		"ListPodSandboxStats":       testListPodSandboxStats,
		"StreamPodSandboxStats":     testStreamPodSandboxStats,
		"ListMetricDescriptors":     testListMetricDescriptors,
		"ListPodSandboxMetrics":     testListPodSandboxMetrics,
		"StreamPodSandboxMetrics":   testStreamPodSandboxMetrics,
		"UpdatePodSandboxResources": testUpdatePodSandboxResources,
		"CheckpointContainer":       testCheckpointContainer,
		"CheckpointPod":             testCheckpointPod,
		"RestorePod":                testRestorePod,
		"ListImages":                testListImages,
		"StreamImages":              testStreamImages,
		"ImageStatus":               testImageStatus,
		"PullImage":                 testPullImage,
		"RemoveImage":               testRemoveImage,
		"ImageFsInfo":               testImageFsInfo,
	}
}

func serviceDescs() []grpc.ServiceDesc {
	return []grpc.ServiceDesc{cri.RuntimeService_ServiceDesc, cri.ImageService_ServiceDesc}
}

// rpcs returns the full method names of cri-api.
func rpcs() (unary, streams []string) {
	for _, d := range serviceDescs() {
		for _, m := range d.Methods {
			unary = append(unary, d.ServiceName+"/"+m.MethodName)
		}
		for _, m := range d.Streams {
			streams = append(streams, d.ServiceName+"/"+m.StreamName)
		}
	}
	return unary, streams
}

func bare(full string) string { return full[strings.LastIndex(full, "/")+1:] }

// TestEveryRPC fails for an RPC of cri-api without a test.
func TestEveryRPC(t *testing.T) {
	tests := rpcTests()
	unary, streams := rpcs()
	all := slices.Concat(unary, streams)
	if len(tests) != len(all) {
		t.Errorf("%d tests, want %d, the RPCs of cri-api", len(tests), len(all))
	}
	for _, full := range all {
		test := tests[bare(full)]
		if test == nil {
			t.Errorf("%s has no test", full)
			continue
		}
		t.Run(bare(full), test)
	}
}

// TestEmptyRequests sends every RPC a message without a field: it is answered or refused without a call of the engine.
func TestEmptyRequests(t *testing.T) {
	h := newHarness(t)
	answers := []string{
		"Version", "Status", "RuntimeConfig", "UpdateRuntimeConfig", "ListPodSandbox", "ListContainers", "ListImages",
		"ImageFsInfo", "ListContainerStats", "ListPodSandboxStats", "ListMetricDescriptors", "ListPodSandboxMetrics",
	}
	unary, _ := rpcs()
	for _, full := range unary {
		err := h.conn.Invoke(t.Context(), "/"+full, &emptypb.Empty{}, &emptypb.Empty{})
		want := codes.InvalidArgument
		if slices.Contains(answers, bare(full)) {
			want = codes.OK
		}
		wantCode(t, err, want)
	}
	if calls := h.engine.log(); len(calls) > 0 {
		t.Errorf("engine calls = %v, want none", calls)
	}
}
