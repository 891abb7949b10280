package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testCheckpointPod(t *testing.T) {
	h := newHarness(t)
	good := &cri.CheckpointPodRequest{PodSandboxId: podID, OutputPath: "/out", ContainerIds: []string{runningID}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must[*cri.CheckpointPodResponse](t)(h.runtime.CheckpointPod(ctx, good))
	want := []string{"CheckpointPod " + podID + " /out [" + runningID + "]"}
	if got := h.engine.log(); !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	_, err := h.runtime.CheckpointPod(context.WithoutCancel(t.Context()), good)
	wantCode(t, err, codes.InvalidArgument, "deadline")
	for words, change := range map[string]func(r *cri.CheckpointPodRequest){
		"pod_sandbox_id: must not be empty":     func(r *cri.CheckpointPodRequest) { r.PodSandboxId = "" },
		"output_path: must be an absolute path": func(r *cri.CheckpointPodRequest) { r.OutputPath = "out" },
		"output_path: must be a clean path":     func(r *cri.CheckpointPodRequest) { r.OutputPath = "/a/../out" },
		"container_ids: must not be empty":      func(r *cri.CheckpointPodRequest) { r.ContainerIds = nil },
		"container_ids[0]: must not be empty":   func(r *cri.CheckpointPodRequest) { r.ContainerIds = []string{""} },
		"container_ids: must not contain an id twice": func(r *cri.CheckpointPodRequest) {
			r.ContainerIds = []string{runningID, runningID}
		},
		"options: are not supported": func(r *cri.CheckpointPodRequest) { r.Options = map[string]string{"a": "b"} },
	} {
		r := proto.Clone(good).(*cri.CheckpointPodRequest)
		change(r)
		_, err := h.runtime.CheckpointPod(ctx, r)
		wantCode(t, err, codes.InvalidArgument, words)
	}
	if calls := len(h.engine.log()); calls != 1 {
		t.Errorf("%d calls of the engine, want none for invalid requests", calls-1)
	}
	h.engine.fail["CheckpointPod"] = fmt.Errorf("%w: with runc", errdefs.ErrNotImplemented)
	_, err = h.runtime.CheckpointPod(ctx, good)
	wantCode(t, err, codes.Unimplemented, "with runc")
}

func testRestorePod(t *testing.T) {
	h := newHarness(t)
	second := goodContainer()
	second.Metadata.Name = "second"
	good := &cri.RestorePodRequest{
		CheckpointPath: "/in", Config: goodPod(), RuntimeHandler: "gvisor",
		ContainerConfigs: []*cri.ContainerConfig{goodContainer(), second},
	}
	r := must[*cri.RestorePodResponse](t)(h.runtime.RestorePod(t.Context(), good))
	want := &cri.RestorePodResponse{PodSandboxId: "newpod", RestoredContainers: []*cri.RestoredContainer{
		{Name: good.ContainerConfigs[0].Metadata.Name, ContainerId: "new1"}, {Name: "second", ContainerId: "new2"},
	}}
	if !proto.Equal(r, want) {
		t.Errorf("answer = %v, want %v", r, want)
	}
	if got := h.engine.restore; got.Path != "/in" || got.Handler != "gvisor" || !proto.Equal(got.Pod, good.Config) ||
		len(got.Containers) != 2 || !proto.Equal(got.Containers[1], second) {
		t.Errorf("engine got %+v, want %v", got, good)
	}
	for words, change := range map[string]func(r *cri.RestorePodRequest){
		"checkpoint_path: must be an absolute path": func(r *cri.RestorePodRequest) { r.CheckpointPath = "" },
		"checkpoint_path: must be a clean path":     func(r *cri.RestorePodRequest) { r.CheckpointPath = "/in/" },
		"config: must be set":                       func(r *cri.RestorePodRequest) { r.Config = nil },
		"container_configs: must not be empty":      func(r *cri.RestorePodRequest) { r.ContainerConfigs = nil },
		"container_configs[1].metadata.name: must not be that of another container": func(r *cri.RestorePodRequest) {
			r.ContainerConfigs[1].Metadata.Name = r.ContainerConfigs[0].Metadata.Name
		},
		"container_configs[0].metadata.name: must not be empty": func(r *cri.RestorePodRequest) {
			r.ContainerConfigs[0].Metadata.Name = ""
		},
		"container_configs[1].linux.security_context.privileged": func(r *cri.RestorePodRequest) {
			r.Config.Linux.SecurityContext.Privileged = false
			r.ContainerConfigs[1].Linux.SecurityContext.Privileged = true
		},
		"runtime_handler": func(r *cri.RestorePodRequest) { r.RuntimeHandler = strings.Repeat("x", 1000) },
		"options":         func(r *cri.RestorePodRequest) { r.Options = map[string]string{"a": "b"} },
	} {
		r := proto.Clone(good).(*cri.RestorePodRequest)
		change(r)
		_, err := h.runtime.RestorePod(t.Context(), r)
		wantCode(t, err, codes.InvalidArgument, words)
	}
	h.engine.fail["RestorePod"] = fmt.Errorf("%w: seal", errdefs.ErrPermissionDenied)
	_, err := h.runtime.RestorePod(t.Context(), good)
	wantCode(t, err, codes.PermissionDenied, "seal")
}

func testCheckpointContainer(t *testing.T) {
	h := newHarness(t)
	good := &cri.CheckpointContainerRequest{ContainerId: runningID, Location: "/dir/out.tar", Timeout: 60}
	must[*cri.CheckpointContainerResponse](t)(h.runtime.CheckpointContainer(t.Context(), good))
	want := []string{"CheckpointContainer " + runningID + " /dir/out.tar 1m0s"}
	if got := h.engine.log(); !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	for words, change := range map[string]func(r *cri.CheckpointContainerRequest){
		"container_id: must not be empty":    func(r *cri.CheckpointContainerRequest) { r.ContainerId = "" },
		"location: must be an absolute path": func(r *cri.CheckpointContainerRequest) { r.Location = "out.tar" },
		"location: must be a clean path":     func(r *cri.CheckpointContainerRequest) { r.Location = "/dir/../out.tar" },
		"location: must be the path":         func(r *cri.CheckpointContainerRequest) { r.Location = "/" },
		"timeout: must not be negative":      func(r *cri.CheckpointContainerRequest) { r.Timeout = -1 },
	} {
		r := proto.Clone(good).(*cri.CheckpointContainerRequest)
		change(r)
		_, err := h.runtime.CheckpointContainer(t.Context(), r)
		wantCode(t, err, codes.InvalidArgument, words)
	}
	if calls := len(h.engine.log()); calls != 1 {
		t.Errorf("%d calls of the engine, want none for invalid requests", calls-1)
	}
	h.engine.fail["CheckpointContainer"] = fmt.Errorf("%w: no criu", errdefs.ErrNotImplemented)
	_, err := h.runtime.CheckpointContainer(t.Context(), good)
	wantCode(t, err, codes.Unimplemented, "no criu")
}
