package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/leak"
	"github.com/podd-project/podd/test/sample"
)

// TestCrashAtEveryCall kills the daemon with SIGKILL before and after every call of another program (conmon, the
// runtime, each CNI plugin) in the life of a pod, and starts it again. Running containers then keep running with the
// same address, incomplete ones are gone or can be removed, the kubelet's retry succeeds, and nothing is left.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			k := startWith(t, daemon.Options{Handler: handler, Gated: true, Set: []string{hooksOfRuntime(t)}})
			b := k.newBystander()
			k.keep = []string{b.pod}
			t.Cleanup(func() { k.keep = nil }) // before all pods are removed
			for _, c := range crashes(k) {
				if handler != "runc" && (strings.HasSuffix(c.call, "-ADD") || strings.HasSuffix(c.call, "-DEL")) {
					continue // CNI calls do not depend on the runtime
				}
				t.Run(fmt.Sprintf("%s %s %s %d", verbs[c.verb].name, c.point, c.call, c.nth), func(t *testing.T) {
					k := k.sub(t)
					c.run(k)
					b.checkUnaffected(k)
				})
			}
		})
	}
}

// crash is one place in a life where the daemon is killed.
type crash struct {
	verb  int // index of verbs
	call  string
	nth   int
	point daemon.Point
	// hooked is set for a pod with hooks, whose containers the runtime starts and deletes.
	hooked bool
}

// crashes runs a life without and one with hooks, and returns a crash for each call that the gates recorded; of the
// latter only for those that podd does not make without hooks.
func crashes(k *kubelet) []crash {
	k.Helper()
	list := crashesOf(k, false)
	for _, c := range crashesOf(k, true) {
		if strings.HasSuffix(c.call, "-start") || strings.HasSuffix(c.call, "-delete") {
			list = append(list, c)
		}
	}
	if len(list) < 20 {
		k.Fatalf("crashes = %v, want at least 20", list)
	}
	return list
}

func crashesOf(k *kubelet, hooked bool) (list []crash) {
	k.Helper()
	l := k.newLifeFor(hooked)
	for i, v := range verbs {
		k.ok("empty the diary", k.Gates.Forget())
		k.ok(v.name, v.do(l, k.ctx()))
		if v.name == "RunPodSandbox" {
			k.wantChains(l.podID)
		}
		calls, err := k.Gates.Diary()
		k.ok("read the diary", err)
		seen := map[string]int{}
		for _, call := range calls {
			seen[call]++
			for _, p := range []daemon.Point{daemon.Before, daemon.After, daemon.Late} {
				if p != daemon.Late || outlivesDaemon(call) {
					list = append(list, crash{i, call, seen[call], p, hooked})
				}
			}
		}
	}
	return list
}

// newLifeFor returns a pod with or without hooks.
func (k *kubelet) newLifeFor(hooked bool) *life {
	l := k.newLife()
	if hooked {
		l.addHooks()
	}
	return l
}

// wantChains fails the test unless the leak check sees the chains of the pod.
func (k *kubelet) wantChains(pod string) {
	k.Helper()
	s, err := leak.Take(leak.Options{Match: leak.Chains(k.Bridge, pod)})
	k.ok("list the packet filter rules", err)
	for key := range s["rule"] {
		if strings.Contains(key, " :CNI-DN-") {
			return
		}
	}
	k.Fatalf("rules of the pod = %v, want the chain of its host port", s["rule"])
}

// outlivesDaemon reports whether the called program keeps running after the daemon's death, next to the next daemon.
func outlivesDaemon(call string) bool {
	return slices.Contains([]string{"conmon-create", "runc-create", "crun-create", "runc-start", "crun-start",
		"conmon-exec", "crun-exec", "runc-delete", "crun-delete", "bridge-DEL"}, call)
}

// run kills the daemon at c, starts the next one and checks the life's pod.
func (c crash) run(k *kubelet) {
	l := k.newLifeFor(c.hooked)
	l.upTo(c.verb)
	k.ok("arm", k.Gates.Arm(c.call, c.nth, c.point))
	_ = verbs[c.verb].do(l, k.ctx()) // may succeed: some programs run after the response
	k.eventually("the daemon is dead", func() bool { return !k.Running() })
	if fired, err := k.Gates.Disarm(); err != nil || !fired {
		k.Fatalf("Disarm() = %v, %v, want the daemon killed by the gate", fired, err)
	}
	k.ok("start podd", k.Start(k.ctx()))
	l.resume(c)
}

// resume checks the pod after the crash and goes on as a kubelet does: it repeats the call, then makes the others.
func (l *life) resume(c crash) {
	k, name := l.k, verbs[c.verb].name
	state := l.listed()
	if l.podID != "" && !strings.HasSuffix(name, "PodSandbox") && state != cri.PodSandboxState_SANDBOX_READY {
		k.Fatalf("pod state after a crash in %s = %v, want SANDBOX_READY", name, state)
	}
	if l.podID != "" && state == cri.PodSandboxState_SANDBOX_READY && l.ip != k.podStatus(l.podID).Network.GetIp() {
		k.Errorf("pod IP after the crash = %s, want %s", k.podStatus(l.podID).Network.GetIp(), l.ip)
	}
	switch name {
	case "CreateContainer":
		for _, ctr := range k.containers(nil) {
			if ctr.PodSandboxId == l.podID && ctr.State != cri.ContainerState_CONTAINER_CREATED {
				k.Errorf("listed container = %v, want it CREATED or not listed", ctr)
			}
		}
	case "StartContainer":
		if l.recreate() {
			return
		}
	case "ExecSync":
		if s := k.container(l.containerID).State; s != cri.ContainerState_CONTAINER_RUNNING {
			k.Errorf("container state after a crash in exec = %v, want CONTAINER_RUNNING", s)
		}
	}
	for _, v := range verbs[c.verb:] {
		k.ok(v.name+" after the crash", v.do(l, k.ctx()))
	}
}

// listed returns the state of the life's pod in the list, or NOTREADY if it is not listed.
func (l *life) listed() cri.PodSandboxState {
	for _, p := range l.k.pods(nil) {
		if p.Metadata.Uid == l.pod.Metadata.Uid {
			return p.State
		}
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// recreate continues the life if the container's start was interrupted: it reports false if the container is CREATED,
// else it makes the remaining calls.
func (l *life) recreate() (done bool) {
	k := l.k
	switch s := k.container(l.containerID); s.State {
	case cri.ContainerState_CONTAINER_CREATED:
		return false
	case cri.ContainerState_CONTAINER_EXITED:
		k.Errorf("container after a crash in StartContainer = %v, want it CREATED or RUNNING", s)
	}
	for _, v := range verbs[3:] {
		k.ok(v.name+" after the crash", v.do(l, k.ctx()))
	}
	return true
}

// bystander is a running pod that must not be affected by crashes of the daemon.
type bystander struct {
	pod, container, ip string
	started            int64
}

func (k *kubelet) newBystander() bystander {
	k.Helper()
	pod, container := k.sleeper()
	return bystander{pod, container, k.podStatus(pod).Network.GetIp(), k.container(container).StartedAt}
}

// checkUnaffected fails the test unless the pod is ready with its address, and the container has run all the time.
func (b bystander) checkUnaffected(k *kubelet) {
	k.Helper()
	if s := k.podStatus(b.pod); s.State != cri.PodSandboxState_SANDBOX_READY || s.Network.GetIp() != b.ip {
		k.Errorf("another pod = %v with IP %s, want SANDBOX_READY with %s", s.State, s.Network.GetIp(), b.ip)
	}
	if s := k.container(b.container); s.State != cri.ContainerState_CONTAINER_RUNNING || s.StartedAt != b.started {
		k.Errorf("container of another pod = %v, want RUNNING since %d", s, b.started)
	}
}
