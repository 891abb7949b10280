package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// life is one pod with one container, from creation to removal, in the calls of a kubelet.
type life struct {
	k         *kubelet
	pod       *cri.PodSandboxConfig
	container *cri.ContainerConfig
	// podID, ip and containerID are from the daemon's responses, empty before the call.
	podID, ip, containerID string
}

// verbs are the calls of a life, in order.
var verbs = []struct {
	name string
	do   func(*life, context.Context) error
}{
	{"RunPodSandbox", (*life).run},
	{"CreateContainer", (*life).create},
	{"StartContainer", (*life).start},
	{"ExecSync", (*life).exec},
	// in one, because work of the stop goes on after its response
	{"StopContainer+RemoveContainer", (*life).stopAndRemove},
	{"StopPodSandbox", (*life).stopPod},
	{"RemovePodSandbox", (*life).removePod},
}

// newLife returns a pod that has not been run. It has a host port, so that every CNI plugin is called.
func (k *kubelet) newLife() *life {
	k.Helper()
	k.have(busybox)
	l := &life{k: k, pod: k.podConfig(), container: k.containerConfig([]string{"sleep", "1000"})}
	l.pod.PortMappings = []*cri.PortMapping{{ContainerPort: 80, HostPort: int32(20000 + k.names.Load()%10000)}}
	k.ok("make the pod's log directory", os.MkdirAll(l.pod.LogDirectory, 0o755))
	return l
}

// hooksOfRuntime returns a setting of podd: hooks of the pods that addHooks has marked. podd has the runtime start and
// delete containers with such hooks, and starts and deletes others by itself.
func hooksOfRuntime(t *testing.T) string {
	t.Helper()
	hook := `{"version": "1.0.0", "hook": {"path": "/bin/true"},
		"when": {"annotations": {"^podd.test/hook$": "^yes$"}}, "stages": ["poststart", "poststop"]}`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "10-true.json"), []byte(hook), 0o644); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("runtime.hooks_dirs=[%q]", dir)
}

// addHooks gives the containers of the pod, which must not exist, the hooks of hooksOfRuntime.
func (l *life) addHooks() { l.pod.Annotations["podd.test/hook"] = "yes" }

// upTo calls the verbs before the nth.
func (l *life) upTo(n int) {
	l.k.Helper()
	for _, v := range verbs[:n] {
		l.k.ok(v.name, v.do(l, l.k.ctx()))
	}
}

func (l *life) run(ctx context.Context) error {
	r, err := l.k.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: l.pod})
	if err != nil {
		return err
	}
	l.podID = r.PodSandboxId
	s, err := l.k.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: l.podID})
	l.ip = s.GetStatus().GetNetwork().GetIp()
	return err
}

func (l *life) create(ctx context.Context) error {
	r, err := l.k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: l.podID, Config: l.container,
		SandboxConfig: l.pod})
	if err != nil {
		return err
	}
	l.containerID = r.ContainerId
	return nil
}

func (l *life) start(ctx context.Context) error {
	_, err := l.k.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: l.containerID})
	return err
}

func (l *life) exec(ctx context.Context) error {
	r, err := l.k.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: l.containerID, Cmd: []string{"echo", "alive"},
		Timeout: 60})
	if err == nil && (r.ExitCode != 0 || string(r.Stdout) != "alive\n") {
		return fmt.Errorf("exit code = %d, stdout = %q, want 0, \"alive\\n\"", r.ExitCode, r.Stdout)
	}
	return err
}

func (l *life) stopAndRemove(ctx context.Context) error {
	if _, err := l.k.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: l.containerID}); err != nil {
		return err
	}
	_, err := l.k.Runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: l.containerID})
	return err
}

func (l *life) stopPod(ctx context.Context) error {
	_, err := l.k.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: l.podID})
	return err
}

func (l *life) removePod(ctx context.Context) error {
	_, err := l.k.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: l.podID})
	return err
}
