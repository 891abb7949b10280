package server

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/imagetest"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
	"github.com/podd-project/podd/sandbox/record"
)

// realEngine is the real engine on fake mechanisms. Its image has the stop signal.
func realEngine(t *testing.T, stopSignal string) *sandbox.Engine {
	t.Helper()
	dir := t.TempDir()
	images := imagetest.NewFake(t.TempDir())
	images.Add(
		image.Image{ID: imageID, Tags: []string{imageTag}, Config: imagespec.ImageConfig{StopSignal: stopSignal}},
		map[string]string{"etc/passwd": "root:x:0:0::/:/bin/sh\n"},
	)
	log := logrus.New()
	log.SetOutput(io.Discard)
	cdi, err := host.NewCDI(nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sandbox.DefaultConfig()
	node := sandbox.Node{BootID: "boot", Layout: record.Layout{
		Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"),
	}}
	bundles := filepath.Join(node.Run, "containers")
	e, err := sandbox.New(node, cfg, sandbox.Deps{
		Budgets:    budget.New(1, 1, 1),
		Namespaces: namespacestest.NewFake(), Network: networktest.NewFake(), Images: images, Mounter: directories{},
		Runtimes: map[string]sandbox.Runtime{"runc": ocitest.NewFake(bundles), "crun": ocitest.NewFake(bundles)},
		Facts:    spec.Facts{Arch: "amd64"}, CDI: cdi, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// directories is a files.Mounter that needs no root: it mounts nothing.
type directories struct{}

func (directories) Mount(_ context.Context, path string, _ files.Tmpfs) error {
	return os.MkdirAll(path, 0o700)
}
func (directories) Unmount(context.Context, string) error { return nil }

// TestLifeOnTheRealEngine creates, starts, stops and removes a pod and a container over gRPC, with the real engine.
func TestLifeOnTheRealEngine(t *testing.T) {
	engine := Adapt(realEngine(t, "SIGINT"))
	h := newHarness(t, func(d *Deps) { d.Engine = engine })
	events, err := h.runtime.GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}, LogDirectory: t.TempDir(),
		Labels: map[string]string{"a": "b"},
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_NODE},
		}},
	}
	podID := must[*cri.RunPodSandboxResponse](t)(
		h.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "crun"}),
	).GetPodSandboxId()
	container := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: imageID},
		Command: []string{"sleep", "1000"}, LogPath: "main.log",
	}
	id := must[*cri.CreateContainerResponse](t)(h.runtime.CreateContainer(
		t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID[:12], Config: container},
	)).GetContainerId()
	must[*cri.StartContainerResponse](t)(
		h.runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: id}),
	)

	checkRunning(t, h, podID, id, filepath.Join(pod.GetLogDirectory(), "main.log"))

	must[*cri.StopContainerResponse](t)(h.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id}))
	s := must[*cri.ContainerStatusResponse](t)(
		h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id}),
	).GetStatus()
	if s.GetState() != cri.ContainerState_CONTAINER_EXITED || s.GetExitCode() != 137 || s.GetReason() != "Error" ||
		s.GetFinishedAt() < s.GetStartedAt() {
		t.Errorf("stopped container: status %v, want exited with 137, Error", s)
	}
	must[*cri.StopPodSandboxResponse](t)(
		h.runtime.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: podID}),
	)
	must[*cri.RemovePodSandboxResponse](t)(
		h.runtime.RemovePodSandbox(t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: podID}),
	)
	for range 2 { // stop and remove are idempotent
		must[*cri.RemoveContainerResponse](t)(
			h.runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: id}),
		)
		must[*cri.StopPodSandboxResponse](t)(
			h.runtime.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: podID}),
		)
	}
	_, err = h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	wantCode(t, err, codes.NotFound)
	if got := engine.ContainersOf(podID); got != nil {
		t.Errorf("containers of a removed pod = %v, want none", got)
	}
	wantEvents(t, events, podID, id)
}

func checkRunning(t *testing.T, h *harness, podID, id, log string) {
	t.Helper()
	p := must[*cri.PodSandboxStatusResponse](t)(
		h.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: podID, Verbose: true}),
	)
	if p.GetStatus().GetState() != cri.PodSandboxState_SANDBOX_READY || p.GetStatus().GetNetwork().GetIp() == "" ||
		p.GetStatus().GetRuntimeHandler() != "crun" {
		t.Errorf("pod status %v, want ready, an IP and handler crun", p.GetStatus())
	}
	if len(p.GetContainersStatuses()) != 1 || p.GetContainersStatuses()[0].GetId() != id {
		t.Errorf("containers of the pod = %v, want only %s", p.GetContainersStatuses(), id)
	}
	s := must[*cri.ContainerStatusResponse](t)(
		h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id[:12]}),
	).GetStatus()
	if s.GetState() != cri.ContainerState_CONTAINER_RUNNING || s.GetLogPath() != log || s.GetImageId() != imageID ||
		s.GetImage().GetImage() != h.images.images[0].Tags[0] || s.GetStopSignal() != cri.Signal_SIGNAL_SIGINT {
		t.Errorf("container status %v, want running, image %s, log %s, SIGINT", s, imageID, log)
	}
	if s.GetCreatedAt() == 0 || s.GetStartedAt() < s.GetCreatedAt() || s.GetFinishedAt() != 0 ||
		s.GetUser().GetLinux() == nil {
		t.Errorf("container status %v, want created before started, not finished, and a user", s)
	}
	list := must[*cri.ListContainersResponse](t)(h.runtime.ListContainers(
		t.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: podID}},
	)).GetContainers()
	if len(list) != 1 || list[0].GetId() != id || list[0].GetState() != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("ListContainers = %v, want %s running", list, id)
	}
	pods := must[*cri.ListPodSandboxResponse](t)(h.runtime.ListPodSandbox(
		t.Context(),
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: map[string]string{"a": "b"}}},
	)).GetItems()
	if len(pods) != 1 || pods[0].GetId() != podID || pods[0].GetRuntimeHandler() != "crun" {
		t.Errorf("ListPodSandbox = %v, want %s with handler crun", pods, podID)
	}
	_, err := h.image.RemoveImage(t.Context(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: imageID}})
	wantCode(t, err, codes.FailedPrecondition, id)
}

// wantEvents reads all events of a pod and its container and checks their order; stop events may be repeated.
func wantEvents(t *testing.T, stream interface {
	Recv() (*cri.ContainerEventResponse, error)
}, podID, id string) {
	t.Helper()
	life := []cri.ContainerEventType{
		cri.ContainerEventType_CONTAINER_CREATED_EVENT, cri.ContainerEventType_CONTAINER_STARTED_EVENT,
		cri.ContainerEventType_CONTAINER_STOPPED_EVENT, cri.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	got := map[string][]cri.ContainerEventType{}
	for !slices.Contains(got[podID], cri.ContainerEventType_CONTAINER_DELETED_EVENT) {
		e, err := stream.Recv()
		if err != nil {
			t.Fatalf("Recv: %v after events %v, want more", err, got)
		}
		if e.GetPodSandboxStatus().GetId() != podID || e.GetPodSandboxStatus().GetMetadata() == nil ||
			time.Since(time.Unix(0, e.GetCreatedAt())) > time.Hour {
			t.Errorf("event %v, want one of pod %s, with metadata, of this hour", e, podID)
		}
		got[e.GetContainerId()] = append(got[e.GetContainerId()], e.GetContainerEventType())
	}
	for _, one := range []string{podID, id} {
		if !slices.Equal(slices.Compact(got[one]), life) {
			t.Errorf("events of %s = %v, want %v", one, got[one], life)
		}
	}
}
