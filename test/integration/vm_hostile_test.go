package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/images"
)

// hostileModes are those of the agent in oci/vm/guest/hostile.
var hostileModes = []string{"garbage", "silent", "liar"}

// TestVMHostileGuest: a machine whose agent attacks the host, from its greeting on, harms its own pod only. Calls
// return, with errors of bounded size, shim and podd stay small, other pods are started meanwhile, and nothing is left.
func TestVMHostileGuest(t *testing.T) {
	t.Parallel()
	var handlers []string
	guests := hostileImages(t)
	for _, mode := range hostileModes {
		handlers = append(handlers, fmt.Sprintf(`runtime.handlers.%s = {type = "shim", path = "containerd-shim-podvm-v1", `+
			`options = {driver = "uml", images = %q}}`, mode, filepath.Join(guests, mode)))
	}
	k := start(t, handlers...)
	k.have(busybox)
	// A silent guest is waited for half a minute.
	for _, mode := range soak([]string{"garbage"}, []string{"garbage", "silent"}) {
		t.Run(mode, func(t *testing.T) {
			s := k.sub(t)
			began := time.Now()
			_, err := s.Runtime.RunPodSandbox(s.ctx(), &cri.RunPodSandboxRequest{RuntimeHandler: mode, Config: s.podConfig()})
			s.wantSmallError("RunPodSandbox", began, err)
			s.checkOthers()
		})
	}
	t.Run("liar", func(t *testing.T) { k.sub(t).checkLiar() })
}

// checkLiar uses a pod whose agent lies, and floods the host.
func (k *kubelet) checkLiar() {
	k.Helper()
	cfg := k.podConfig()
	pod := k.runPod(cfg, "liar")
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"})
	began := time.Now()
	_, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: ctr, Cmd: []string{"true"}, Timeout: 60})
	k.wantSmallError("ExecSync", began, err)
	began = time.Now()
	_, err = k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: ctr,
		Linux: &cri.LinuxContainerResources{CpuShares: 3}})
	k.wantSmallError("UpdateContainerResources", began, err)
	stats, err := k.Runtime.ContainerStats(k.ctx(), &cri.ContainerStatsRequest{ContainerId: ctr})
	if err == nil && stats.Stats.GetMemory().GetWorkingSetBytes().GetValue() > 0 {
		k.Errorf("usage of a guest that answers rubbish = %v, want none", stats.Stats)
	}
	k.checkOthers()
	const most = 192 << 20 // the shim's own 18 MiB, what may wait, and the monitor's with its part of the guest's memory
	for pid := range k.machineProcesses() {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if size := proportionalSize(pid); strings.HasPrefix(string(name), "containerd-shim") && size > most {
			k.Errorf("the shim uses %d bytes, want at most %d", size, most)
		}
	}
	began = time.Now()
	k.stopPod(pod)
	k.removePod(pod)
	if took := time.Since(began); took > time.Minute {
		k.Errorf("the pod was stopped and removed after %s, want less than a minute", took)
	}
}

// wantSmallError fails the test unless a call has failed by a limit of the shim, not of its caller, with a text of
// bounded size that cannot control a terminal.
func (k *kubelet) wantSmallError(what string, began time.Time, err error) {
	k.Helper()
	const most = 16 << 10
	switch text := status.Convert(err).Message(); {
	case err == nil:
		k.Errorf("%s = nil, want an error", what)
	case len(text) > most:
		k.Errorf("%s: error of %d bytes, want at most %d", what, len(text), most)
	case strings.ContainsRune(text, '\x1b'):
		k.Errorf("%s: error %.200q, want no control characters", what, text)
	case time.Since(began) > 50*time.Second:
		k.Errorf("%s: %v after %s, want an error before the caller's deadline", what, err, time.Since(began))
	}
}

// checkOthers runs a pod of runc.
func (k *kubelet) checkOthers() {
	k.Helper()
	cfg := k.podConfig()
	pod := k.runPod(cfg, "runc")
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"})
	k.exec(ctr, "true")
	k.removePod(pod)
}

// hostileImages makes guest images, in a directory for each of hostileModes: those of the build, with another agent.
func hostileImages(t *testing.T) string {
	t.Helper()
	guest, err := filepath.Abs("../../bin/vm/uml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "init")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./guest/hostile")
	build.Dir, build.Env = "../../oci/vm", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, out)
	}
	agent, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range hostileModes {
		image := filepath.Join(dir, mode, "uml")
		if err := os.MkdirAll(image, 0o755); err != nil {
			t.Fatal(err)
		}
		initrd := images.InitialFileSystem(agent, images.InitialFile{Name: "mode", Mode: 0o100644, Data: []byte(mode)})
		if err := os.WriteFile(filepath.Join(image, "initrd"), initrd, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"kernel", "virtiofsd", "lib", "lib64"} {
			if err := os.Symlink(filepath.Join(guest, name), filepath.Join(image, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
