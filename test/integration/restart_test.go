package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// ends are the ways for the daemon to end.
var ends = []struct {
	name string
	end  func(*kubelet) func() error
}{
	{"stopped", func(k *kubelet) func() error { return k.Stop }},
	{"killed", func(k *kubelet) func() error { return k.Kill9 }},
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, handler := range []string{"runc", "crun"} {
		k := startWith(t, daemon.Options{Handler: handler})
		for _, e := range ends {
			t.Run(handler+"/"+e.name, func(t *testing.T) {
				k := k.sub(t)
				survive(k, e.end(k))
			})
		}
	}
}

// survive restarts the daemon under pods in every state, and compares what it says before and after.
func survive(k *kubelet, end func() error) {
	pod, podCfg := k.pod()
	shared, sharedCfg := k.pod(podPid(cri.NamespaceMode_POD))
	running, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"})
	together, _ := k.runIn(shared, sharedCfg, []string{"sleep", "1000"}, pid(cri.NamespaceMode_POD))
	created := k.create(pod, k.containerConfig([]string{"sleep", "1000"}), podCfg)
	exited, _ := k.runIn(pod, podCfg, []string{"sh", "-c", "exit 9"})
	k.exited(exited)
	ends, _ := k.runIn(pod, podCfg, []string{"sh", "-c", "while [ ! -e /dev/shm/go ]; do sleep 0.05; done; exit 11"})
	stopped, _ := k.pod()
	k.stopPod(stopped)

	before := k.everything()
	k.ok("end the daemon", end())
	// /dev/shm of the pod is on the host, where we can write to it without the daemon
	k.ok("let one container end", os.WriteFile(k.shm(pod)+"/go", nil, 0o644))
	time.Sleep(300 * time.Millisecond)
	k.ok("start the daemon", k.Start(k.ctx()))

	if st := k.exited(ends); st.ExitCode != 11 || st.FinishedAt == 0 || st.Reason != "Error" {
		k.Errorf("the container that ended meanwhile: %v", st)
	}
	after := k.everything()
	delete(before, ends)
	delete(after, ends)
	for id, was := range before {
		if after[id] != was {
			k.Errorf("before and after the restart:\n%s\n%s", was, after[id])
		}
	}
	for id, is := range after {
		if before[id] == "" {
			k.Errorf("new after the restart: %s", is)
		}
	}
	for _, id := range []string{running, together} {
		if out := k.exec(id, "echo alive; ip -4 -o addr show dev eth0 | wc -l"); out != "alive\n1\n" {
			k.Errorf("exec after the restart: %q", out)
		}
	}
	k.startContainer(created)
	if st := k.container(created); st.State != cri.ContainerState_CONTAINER_RUNNING {
		k.Errorf("a container created before the restart is %v after its start", st.State)
	}
	k.stopContainer(running, 0)
	if st := k.container(running); st.ExitCode != 137 {
		k.Errorf("stopped after the restart: %v", st)
	}
	if extra := k.create(pod, k.containerConfig([]string{"true"}), podCfg); extra == "" {
		k.Error("no new container in the old pod")
	}
}

// shm finds the pod's shared memory on the host.
func (k *kubelet) shm(pod string) string {
	k.Helper()
	path := k.Path("run", "pods", pod, "shm")
	if _, err := os.Stat(path); err != nil {
		k.Fatalf("shared memory of pod %s: %v", pod, err)
	}
	return path
}

// everything is what the daemon says of all pods and containers, by id.
func (k *kubelet) everything() map[string]string {
	k.Helper()
	all := map[string]string{}
	for _, p := range k.pods(nil) {
		all[p.Id] = fmt.Sprint(p, k.podStatus(p.Id))
	}
	for _, c := range k.containers(nil) {
		all[c.Id] = fmt.Sprint(c, k.container(c.Id))
	}
	return all
}

// TestKilledAtWork kills the daemon at random moments of a pod's making and taking down, which are not only those of
// TestCrashAtEveryCall. What is listed afterwards can be removed, what is not listed has left nothing, and the same
// request can be made again.
func TestKilledAtWork(t *testing.T) {
	t.Parallel()
	k := start(t)
	k.have(busybox)
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range soak(5, 100) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			k := k.sub(t)
			cfg := k.podConfig()
			k.ok("make the log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
			ctx, cancel := context.WithCancel(k.ctx())
			done := make(chan struct{})
			go func() {
				defer close(done)
				k.lifeOf(ctx, cfg)
			}()
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
			k.ok("kill podd", k.Kill9())
			cancel()
			<-done
			k.ok("start podd", k.Start(k.ctx()))
			for _, p := range k.pods(nil) {
				if p.State != cri.PodSandboxState_SANDBOX_READY { // killed on the way down: the kubelet removes it
					k.removePod(p.Id)
				}
			}
			again := k.runPod(cfg, "")
			ctr, _ := k.runIn(again, cfg, []string{"sleep", "1000"})
			k.exec(ctr, "true")
		})
	}
}

// lifeOf makes a pod and takes it down again, until something goes wrong.
func (k *kubelet) lifeOf(ctx context.Context, cfg *cri.PodSandboxConfig) {
	for {
		p, err := k.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: cfg})
		if err != nil {
			return
		}
		for range 2 {
			c, err := k.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
				PodSandboxId: p.PodSandboxId, Config: k.containerConfig([]string{"sleep", "1000"}), SandboxConfig: cfg})
			if err != nil {
				return
			}
			if _, err := k.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
				return
			}
		}
		if _, err := k.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.PodSandboxId}); err != nil {
			return
		}
		if _, err := k.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.PodSandboxId}); err != nil {
			return
		}
	}
}
