package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

func testCreateContainer(t *testing.T) {
	h := newHarness(t)
	cfg := goodContainer()
	cfg.Envs[1].Value = []byte("näh")
	r := must[*cri.CreateContainerResponse](t)(h.runtime.CreateContainer(
		t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: cfg, SandboxConfig: goodPod()},
	))
	if got := r.GetContainerId(); got != "newcontainer" {
		t.Errorf("id = %q, want %q", got, "newcontainer")
	}
	if got := h.engine.containerConfig; !proto.Equal(got, cfg) {
		t.Errorf("engine got %v, want %v", got, cfg)
	}
	h.engine.fail["CreateContainer"] = fmt.Errorf("image: %w", errdefs.ErrNotFound)
	_, err := h.runtime.CreateContainer(t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: cfg})
	wantCode(t, err, codes.NotFound)
}

func testStartContainer(t *testing.T) {
	h := newHarness(t)
	must[*cri.StartContainerResponse](t)(
		h.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: runningID}),
	)
	if got, want := h.engine.log(), []string{"StartContainer " + runningID}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	for want, fail := range map[codes.Code]error{
		codes.NotFound:           errdefs.ErrNotFound,
		codes.FailedPrecondition: errdefs.ErrFailedPrecondition,
		codes.Unknown:            errors.New(`exec: "nope": executable file not found in $PATH`),
	} {
		h.engine.fail["StartContainer"] = fail
		_, err := h.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: runningID})
		wantCode(t, err, want, fail.Error())
	}
}

func testStopContainer(t *testing.T) {
	idempotent(t, "StopContainer", runningID, func(h *harness, ctx context.Context, id string) error {
		_, err := h.runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: 5})
		return err
	})
	for timeout, want := range map[int64]time.Duration{
		0: 0, 30: 30 * time.Second, math.MaxInt64: math.MaxInt64 / time.Second * time.Second,
	} {
		h := newHarness(t)
		must[*cri.StopContainerResponse](t)(h.runtime.StopContainer(
			t.Context(), &cri.StopContainerRequest{ContainerId: runningID, Timeout: timeout},
		))
		want := fmt.Sprintf("StopContainer %s %v", runningID, want)
		if got := h.engine.log()[0]; got != want {
			t.Errorf("timeout %d: call %q, want %q", timeout, got, want)
		}
	}
	_, err := newHarness(t).runtime.StopContainer(
		t.Context(), &cri.StopContainerRequest{ContainerId: runningID, Timeout: -1},
	)
	wantCode(t, err, codes.InvalidArgument, "timeout")
}

func testRemoveContainer(t *testing.T) {
	idempotent(t, "RemoveContainer", runningID, func(h *harness, ctx context.Context, id string) error {
		_, err := h.runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
		return err
	})
	t.Run("removed by another call meanwhile", func(t *testing.T) {
		h := newHarness(t)
		h.engine.fail["RemoveContainer"] = errdefs.ErrNotFound
		h.engine.on = func(string, ...any) { h.engine.containers = nil }
		_, err := h.runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: runningID})
		wantCode(t, err, codes.OK)
	})
}

func testListContainers(t *testing.T) {
	h := newHarness(t)
	list := func(t *testing.T, f *cri.ContainerFilter) []*cri.Container {
		return must[*cri.ListContainersResponse](t)(
			h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{Filter: f}),
		).GetContainers()
	}
	containerFilters(t, list)
	want := &cri.Container{
		Id: runningID, PodSandboxId: podID, Metadata: goodContainer().GetMetadata(), Image: namedImage(),
		ImageRef: imageDgst, ImageId: imageID,
		State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: created.UnixNano(),
		Labels: goodContainer().GetLabels(), Annotations: goodContainer().GetAnnotations(),
	}
	if got := list(t, nil)[0]; !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	_, err := h.runtime.ListContainers(
		t.Context(),
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{State: &cri.ContainerStateValue{State: -1}}},
	)
	wantCode(t, err, codes.InvalidArgument, "filter.state.state")
	t.Run("each image is resolved once", func(t *testing.T) {
		h := newHarness(t)
		must[*cri.ListContainersResponse](t)(h.runtime.ListContainers(t.Context(), &cri.ListContainersRequest{}))
		if calls := h.images.log(); len(calls) != 1 {
			t.Errorf("calls of the store = %q, want one", calls)
		}
	})
}

// namedImage is goodContainer's image as in status and lists: with the name of the pod's spec.
func namedImage() *cri.ImageSpec {
	spec := goodContainer().GetImage()
	spec.Image, spec.RuntimeHandler = imageTag, "" // images in lists have no handler
	return spec
}

func containerFilters(t *testing.T, list func(*testing.T, *cri.ContainerFilter) []*cri.Container) {
	running := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	createdState := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_CREATED}
	for name, tt := range map[string]struct {
		filter *cri.ContainerFilter
		want   []string
	}{
		"none":           {nil, []string{runningID, exitedID}},
		"id":             {&cri.ContainerFilter{Id: runningID}, []string{runningID}},
		"prefix":         {&cri.ContainerFilter{Id: "ccd"}, []string{exitedID}},
		"pod":            {&cri.ContainerFilter{PodSandboxId: podID}, []string{runningID, exitedID}},
		"pod by prefix":  {&cri.ContainerFilter{PodSandboxId: "aaaa"}, []string{runningID, exitedID}},
		"other pod":      {&cri.ContainerFilter{PodSandboxId: stoppedID}, nil},
		"running":        {&cri.ContainerFilter{State: running}, []string{runningID}},
		"created":        {&cri.ContainerFilter{State: createdState}, nil},
		"label":          {&cri.ContainerFilter{LabelSelector: map[string]string{"app": "other"}}, []string{exitedID}},
		"label and more": {&cri.ContainerFilter{LabelSelector: map[string]string{"app": "other"}, State: running}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, c := range list(t, tt.filter) {
				got = append(got, c.GetId())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func testStreamContainers(t *testing.T) {
	h := newHarness(t)
	containerFilters(t, func(t *testing.T, f *cri.ContainerFilter) []*cri.Container {
		s, err := h.runtime.StreamContainers(t.Context(), &cri.StreamContainersRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		all, _ := receive(t, s, (*cri.StreamContainersResponse).GetContainers)
		return all
	})
	s, err := h.runtime.StreamContainers(
		t.Context(), &cri.StreamContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: "\x00"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	wantCode(t, err, codes.InvalidArgument, "filter.pod_sandbox_id")
}

func testContainerStatus(t *testing.T) {
	t.Run("running", func(t *testing.T) { wantStatus(t, runningID, runningStatus()) })
	t.Run("exited", func(t *testing.T) { wantStatus(t, exitedID, exitedStatus()) })
	t.Run("absent", func(t *testing.T) {
		_, err := newHarness(t).runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: "ffff"})
		wantCode(t, err, codes.NotFound)
	})
	t.Run("image removed", func(t *testing.T) {
		h := newHarness(t)
		h.images.images = nil
		r := must[*cri.ContainerStatusResponse](t)(
			h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: runningID}),
		)
		if s := r.GetStatus(); s.GetImageRef() != imageID || s.GetImageId() != imageID || s.GetImage().GetImage() != imageID {
			t.Errorf("image %v, ref %q, id %q, want %s for all", s.GetImage(), s.GetImageRef(), s.GetImageId(), imageID)
		}
	})
	t.Run("verbose", testContainerStatusVerbose)
}

func wantStatus(t *testing.T, id string, want *cri.ContainerStatus) {
	t.Helper()
	r := must[*cri.ContainerStatusResponse](t)(
		newHarness(t).runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id}),
	)
	if got := r.GetStatus(); !proto.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if len(r.GetInfo()) != 0 {
		t.Errorf("info = %v, want none without verbose", r.GetInfo())
	}
}

func runningStatus() *cri.ContainerStatus {
	sent := goodContainer()
	sent.Mounts[2].Image.ImageRef = imageDgst
	return &cri.ContainerStatus{
		Id: runningID, Metadata: sent.GetMetadata(), State: cri.ContainerState_CONTAINER_RUNNING,
		CreatedAt: created.UnixNano(), StartedAt: created.Add(time.Second).UnixNano(),
		Image: namedImage(), ImageRef: imageDgst, ImageId: imageID,
		Labels: sent.GetLabels(), Annotations: sent.GetAnnotations(), Mounts: sent.GetMounts(),
		LogPath:   "/var/log/pods/default_web_u-1/main/0.log",
		Resources: &cri.ContainerResources{Linux: &cri.LinuxContainerResources{CpuShares: 512}},
		User: &cri.ContainerUser{
			Linux: &cri.LinuxContainerUser{Uid: 1000, Gid: 1001, SupplementalGroups: []int64{1001, 2000}},
		},
		StopSignal: cri.Signal_SIGNAL_SIGTERM,
	}
}

func exitedStatus() *cri.ContainerStatus {
	s := runningStatus()
	s.Id, s.State, s.FinishedAt = exitedID, cri.ContainerState_CONTAINER_EXITED, created.Add(2*time.Second).UnixNano()
	s.ExitCode, s.Reason, s.Message = 137, "OOMKilled", "out of memory ?"
	s.Labels = map[string]string{"app": "other"}
	s.Resources = &cri.ContainerResources{Linux: goodContainer().GetLinux().GetResources()}
	s.User = nil
	s.StopSignal = cri.Signal_SIGNAL_SIGRTMINPLUS3
	return s
}

func testContainerStatusVerbose(t *testing.T) {
	h := newHarness(t)
	get := func() string {
		r := must[*cri.ContainerStatusResponse](t)(h.runtime.ContainerStatus(
			t.Context(), &cri.ContainerStatusRequest{ContainerId: runningID, Verbose: true},
		))
		return r.GetInfo()["info"]
	}
	var info struct {
		Pid         int
		SandboxID   string
		RuntimeSpec *specs.Spec
		Config      map[string]any
	}
	text := get()
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(err)
	}
	if info.Pid != 4711 || info.SandboxID != podID || info.RuntimeSpec.Process.Args[0] != "sh" ||
		info.Config["workingDir"] != "/srv" {
		t.Errorf("info = %s, want pid 4711, pod %s, args and working directory", text, podID)
	}
	for _, bad := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} { // bytes are base64 in JSON
		if strings.Contains(text, bad) {
			t.Errorf("info = %s, want no environment", text)
		}
	}
	if got := string(h.engine.containers[0].Config.GetEnvs()[0].GetValue()); got != secret {
		t.Errorf("environment in the record = %q, want %q", got, secret)
	}
	if cpu := info.RuntimeSpec.Linux.Resources.CPU; *cpu.Shares != 512 || *cpu.Quota != 1000 {
		t.Errorf("CPU in runtimeSpec = %+v, want the shares of the status, 512, and the quota of config.json, 1000", cpu)
	}
	h.server.deps.RuntimeSpec = func(string) (*specs.Spec, error) { return nil, errdefs.ErrNotFound }
	if text := get(); !strings.Contains(text, "runtimeSpecError") || !strings.Contains(text, "4711") {
		t.Errorf("info without a spec = %s, want runtimeSpecError and the pid", text)
	}
}

func TestContainerStates(t *testing.T) {
	for state, want := range map[record.ContainerState]cri.ContainerState{
		record.ContainerCreating: cri.ContainerState_CONTAINER_UNKNOWN,
		record.ContainerCreated:  cri.ContainerState_CONTAINER_CREATED,
		record.ContainerRunning:  cri.ContainerState_CONTAINER_RUNNING,
		record.ContainerExited:   cri.ContainerState_CONTAINER_EXITED,
		"something new":          cri.ContainerState_CONTAINER_UNKNOWN,
	} {
		if got := containerState(state); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
	for state, want := range map[record.PodState]cri.PodSandboxState{
		record.PodCreating: cri.PodSandboxState_SANDBOX_NOTREADY,
		record.PodReady:    cri.PodSandboxState_SANDBOX_READY,
		record.PodStopping: cri.PodSandboxState_SANDBOX_NOTREADY,
		record.PodNotReady: cri.PodSandboxState_SANDBOX_NOTREADY,
	} {
		if got := podState(state); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

func testUpdateContainerResources(t *testing.T) {
	h := newHarness(t)
	r := goodContainer().GetLinux().GetResources()
	must[*cri.UpdateContainerResourcesResponse](t)(h.runtime.UpdateContainerResources(
		t.Context(), &cri.UpdateContainerResourcesRequest{ContainerId: runningID, Linux: r},
	))
	if !proto.Equal(h.engine.resources, r) {
		t.Errorf("engine got %v, want %v", h.engine.resources, r)
	}
	h.engine.fail["UpdateContainer"] = errdefs.ErrNotFound
	_, err := h.runtime.UpdateContainerResources(
		t.Context(), &cri.UpdateContainerResourcesRequest{ContainerId: "ffff", Linux: r},
	)
	wantCode(t, err, codes.NotFound)
}

func testReopenContainerLog(t *testing.T) {
	h := newHarness(t)
	must[*cri.ReopenContainerLogResponse](t)(
		h.runtime.ReopenContainerLog(t.Context(), &cri.ReopenContainerLogRequest{ContainerId: runningID}),
	)
	if got, want := h.engine.log(), []string{"ReopenLog " + runningID}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
	h.engine.fail["ReopenLog"] = fmt.Errorf("%w: container is exited, not running", errdefs.ErrFailedPrecondition)
	_, err := h.runtime.ReopenContainerLog(t.Context(), &cri.ReopenContainerLogRequest{ContainerId: exitedID})
	wantCode(t, err, codes.FailedPrecondition, "not running")
}
