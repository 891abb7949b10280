package server

import (
	"fmt"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reportedSignal creates a container over gRPC, with the real engine, and returns the stop signal in its status.
func reportedSignal(t *testing.T, config cri.Signal, image string) cri.Signal {
	t.Helper()
	h := newHarness(t, func(d *Deps) { d.Engine = Adapt(realEngine(t, image)) })
	pod := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}, LogDirectory: t.TempDir(),
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER, Ipc: cri.NamespaceMode_NODE},
		}},
	}
	podID := must[*cri.RunPodSandboxResponse](t)(
		h.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod}),
	).GetPodSandboxId()
	id := must[*cri.CreateContainerResponse](t)(h.runtime.CreateContainer(
		t.Context(), &cri.CreateContainerRequest{PodSandboxId: podID, Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: imageID},
			Command: []string{"sleep", "1000"}, StopSignal: config,
		}},
	)).GetContainerId()
	return must[*cri.ContainerStatusResponse](t)(
		h.runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: id}),
	).GetStatus().GetStopSignal()
}

// TestStopSignal: the status has the stop signal, whether the request or the image chose it.
func TestStopSignal(t *testing.T) {
	t.Run("of the request", func(t *testing.T) {
		for value := range cri.Signal_name {
			want := cri.Signal(value)
			if want == cri.Signal_SIGNAL_RUNTIME_DEFAULT {
				want = cri.Signal_SIGNAL_SIGTERM
			}
			if got := reportedSignal(t, cri.Signal(value), ""); got != want {
				t.Errorf("stop signal of %v = %v, want %v", cri.Signal(value), got, want)
			}
		}
	})
	t.Run("of the image", func(t *testing.T) {
		images := map[string]cri.Signal{
			"SIGQUIT": cri.Signal_SIGNAL_SIGQUIT, "usr1": cri.Signal_SIGNAL_SIGUSR1, "9": cri.Signal_SIGNAL_SIGKILL,
			"SIGRTMIN": cri.Signal_SIGNAL_SIGRTMIN, "SIGRTMIN+0": cri.Signal_SIGNAL_SIGRTMIN,
			"rtmin+3": cri.Signal_SIGNAL_SIGRTMINPLUS3, "SIGRTMIN+20": cri.Signal_SIGNAL_SIGRTMAXMINUS10,
			"SIGRTMAX-20": cri.Signal_SIGNAL_SIGRTMINPLUS10, "SIGRTMAX-0": cri.Signal_SIGNAL_SIGRTMAX,
		}
		for n := 34; n <= 64; n++ { // the kernel's numbers, in the order of the CRI's values
			images[fmt.Sprint(n)] = cri.Signal_SIGNAL_SIGRTMIN + cri.Signal(n-34)
		}
		for image, want := range images {
			if got := reportedSignal(t, 0, image); got != want {
				t.Errorf("stop signal of an image with %s = %v, want %v", image, got, want)
			}
		}
	})
}
