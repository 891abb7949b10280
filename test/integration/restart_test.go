package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// ends are the ways to end the daemon.
var ends = []struct {
	name string
	end  func(*kubelet) func() error
}{
	{"stopped", func(k *kubelet) func() error { return k.Stop }},
	{"killed", func(k *kubelet) func() error { return k.Kill9 }},
}

func TestRestart(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun") {
		k := startWith(t, daemon.Options{Handler: handler})
		for _, e := range ends {
			t.Run(handler+"/"+e.name, func(t *testing.T) {
				k := k.sub(t)
				checkRestart(k, e.end(k))
			})
		}
	}
}

// checkRestart restarts the daemon with pods in every state, and compares lists and statuses before and after.
func checkRestart(k *kubelet, end func() error) {
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

	before := k.snapshot()
	k.ok("end the daemon", end())
	// /dev/shm of the pod is on the host, so it can be written to without the daemon
	k.ok("let one container end", os.WriteFile(k.shm(pod)+"/go", nil, 0o644))
	time.Sleep(300 * time.Millisecond)
	k.ok("start the daemon", k.Start(k.ctx()))

	if st := k.exited(ends); st.ExitCode != 11 || st.FinishedAt == 0 || st.Reason != "Error" {
		k.Errorf("container that exited while no daemon ran = %v, want exit code 11, reason Error, finished_at set", st)
	}
	after := k.snapshot()
	delete(before, ends)
	delete(after, ends)
	for id, was := range before {
		if after[id] != was {
			k.Errorf("after the restart = %s, want %s", after[id], was)
		}
	}
	for id, is := range after {
		if before[id] == "" {
			k.Errorf("after the restart = %s, want it not listed, as before", is)
		}
	}
	for _, id := range []string{running, together} {
		if out := k.exec(id, "echo alive; ip -4 -o addr show dev eth0 | wc -l"); out != "alive\n1\n" {
			k.Errorf("output of exec after the restart = %q, want %q", out, "alive\n1\n")
		}
	}
	k.startContainer(created)
	if st := k.container(created); st.State != cri.ContainerState_CONTAINER_RUNNING {
		k.Errorf("state of a container created before the restart and started after it = %v, want CONTAINER_RUNNING",
			st.State)
	}
	k.stopContainer(running, 0)
	if st := k.container(running); st.ExitCode != 137 {
		k.Errorf("container stopped after the restart = %v, want exit code 137", st)
	}
	if extra := k.create(pod, k.containerConfig([]string{"true"}), podCfg); extra == "" {
		k.Error("CreateContainer in a pod of before the restart: id = \"\", want one")
	}
}

// shm returns the path of the pod's shared memory on the host.
func (k *kubelet) shm(pod string) string {
	k.Helper()
	path := k.Path("run", "pods", pod, "shm")
	if _, err := os.Stat(path); err != nil {
		k.Fatalf("shared memory of pod %s: %v", pod, err)
	}
	return path
}

// snapshot returns the list entry and status of every pod and container, by id.
func (k *kubelet) snapshot() map[string]string {
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

// TestKilledAtWork kills the daemon at random moments of a pod's life, also between the calls of TestCrashAtEveryCall.
// Afterwards listed pods can be removed, others have left nothing, and the same request succeeds.
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
				k.repeatLife(ctx, cfg)
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

// TestKilledInExec kills the daemon while a command with a timeout runs. The next one removes the command's files and
// cgroup. The command itself runs until its container ends; with a shim it is killed, because its output has no reader.
func TestKilledInExec(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun", "runc-shim") {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			k := start(t, append(runcShim(), "runtime.default_handler = "+strconv.Quote(handler))...)
			_, id := k.sleeper()
			ended := make(chan error, 1)
			go func() {
				_, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: id, Timeout: 600,
					Cmd: []string{"sleep", "4321"}})
				ended <- err
			}()
			const running = "ps -o args | grep '432[1]' || true"
			k.eventually("the command runs", func() bool { return k.exec(id, running) != "" })
			files := k.commandFiles(id)
			if groups := k.commandGroups(); len(files) == 0 || handler == "runc" && len(groups) == 0 {
				k.Fatalf("files and cgroups of a command: %q, %q, want some", files, groups)
			}
			k.ok("restart podd", k.Restart(k.ctx(), k.Kill9))
			if err := <-ended; err == nil {
				k.Error("ExecSync of a podd that was killed: error = nil, want one")
			}
			k.eventually("the command's files are removed", func() bool { return len(k.commandFiles(id)) == 0 })
			k.eventually("the command's cgroup is removed", func() bool { return len(k.commandGroups()) == 0 })
			if ran := k.exec(id, running) != ""; ran != (handler != "runc-shim") {
				k.Errorf("the command runs: %t", ran)
			}
		})
	}
}

// commandFiles returns the files of commands in the container's bundle.
func (k *kubelet) commandFiles(container string) []string {
	found, err := filepath.Glob(k.Path("run", "containers", container, "exec-*"))
	k.ok("files of commands", err)
	return found
}

// commandGroups returns the cgroups of commands in the daemon's containers.
func (k *kubelet) commandGroups() []string {
	return slices.DeleteFunc(k.cgroups(), func(dir string) bool {
		return !strings.HasPrefix(filepath.Base(dir), "podd-exec-")
	})
}

// repeatLife runs and removes a pod again and again until a call fails.
func (k *kubelet) repeatLife(ctx context.Context, cfg *cri.PodSandboxConfig) {
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
