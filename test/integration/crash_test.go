package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/leak"
)

// TestCrashAtEveryCall kills the daemon with SIGKILL before and after every call that it makes of another program
// (conmon, the runtime, each CNI plugin) in the life of a pod, and starts it again. Then what ran runs on with the same
// address, what was half made is gone or can be removed, the kubelet's retry succeeds, and nothing is left.
func TestCrashAtEveryCall(t *testing.T) {
	t.Parallel()
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			k := startWith(t, daemon.Options{Handler: handler, Gated: true})
			b := k.newBystander()
			k.keep = []string{b.pod}
			t.Cleanup(func() { k.keep = nil }) // before all pods are removed
			for _, c := range crashes(k) {
				if handler != "runc" && (strings.HasSuffix(c.call, "-ADD") || strings.HasSuffix(c.call, "-DEL")) {
					continue // the CNI plugins do not know which runtime it is
				}
				t.Run(fmt.Sprintf("%s %s %s %d", verbs[c.verb].name, c.point, c.call, c.nth), func(t *testing.T) {
					k := k.sub(t)
					c.happens(k)
					b.unharmed(k)
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
}

// crashes lives a life and lists what there is to be killed at.
func crashes(k *kubelet) []crash {
	k.Helper()
	var list []crash
	l := k.newLife()
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
				if p != daemon.Late || outlives(call) {
					list = append(list, crash{i, call, seen[call], p})
				}
			}
		}
	}
	if len(list) < 20 {
		k.Fatalf("a life makes only these calls: %v", list)
	}
	return list
}

// wantChains makes sure that the leak check would see a chain of the pod that is left.
func (k *kubelet) wantChains(pod string) {
	k.Helper()
	s, err := leak.Take(leak.Options{Match: leak.Chains(k.Bridge, pod)})
	k.ok("look at the packet filter", err)
	for key := range s["rule"] {
		if strings.Contains(key, " :CNI-DN-") {
			return
		}
	}
	k.Fatalf("no chain of the pod's host port among %v", s["rule"])
}

// outlives is true for calls that go on when the daemon is dead: they meet the next one.
func outlives(call string) bool {
	return slices.Contains([]string{"conmon-create", "runc-create", "crun-create", "runc-start", "crun-start",
		"conmon-exec", "crun-exec", "runc-delete", "crun-delete", "bridge-DEL"}, call)
}

// happens kills the daemon at c and looks at what the next one makes of it.
func (c crash) happens(k *kubelet) {
	l := k.newLife()
	l.upTo(c.verb)
	k.ok("arm", k.Gates.Arm(c.call, c.nth, c.point))
	_ = verbs[c.verb].do(l, k.ctx()) // an error, or an answer while something goes on beside it
	k.eventually("the daemon is dead", func() bool { return !k.Running() })
	if fired, err := k.Gates.Disarm(); err != nil || !fired {
		k.Fatalf("the daemon was not killed by the gate: %v", err)
	}
	k.ok("start podd", k.Start(k.ctx()))
	l.afterwards(c)
}

// afterwards is what a kubelet does after the crash: it looks, asks again for what it has no answer to, and goes on.
func (l *life) afterwards(c crash) {
	k, name := l.k, verbs[c.verb].name
	state := l.listed()
	if l.podID != "" && !strings.HasSuffix(name, "PodSandbox") && state != cri.PodSandboxState_SANDBOX_READY {
		k.Fatalf("the pod is %v after a crash in %s, want ready", state, name)
	}
	if l.podID != "" && state == cri.PodSandboxState_SANDBOX_READY && l.ip != k.podStatus(l.podID).Network.GetIp() {
		k.Errorf("the pod has address %s, before the crash %s", k.podStatus(l.podID).Network.GetIp(), l.ip)
	}
	switch name {
	case "CreateContainer":
		for _, ctr := range k.containers(nil) {
			if ctr.PodSandboxId == l.podID && ctr.State != cri.ContainerState_CONTAINER_CREATED {
				k.Errorf("a half-made container is listed: %v", ctr)
			}
		}
	case "StartContainer":
		if l.recreate() {
			return
		}
	case "ExecSync":
		if s := k.container(l.containerID).State; s != cri.ContainerState_CONTAINER_RUNNING {
			k.Errorf("the container is %v after a crash in exec", s)
		}
	}
	for _, v := range verbs[c.verb:] {
		k.ok(v.name+" after the crash", v.do(l, k.ctx()))
	}
}

// listed is the state of the life's pod in the list; NotReady if it is not there.
func (l *life) listed() cri.PodSandboxState {
	for _, p := range l.k.pods(nil) {
		if p.Metadata.Uid == l.pod.Metadata.Uid {
			return p.State
		}
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// recreate goes on with a container whose start was cut short: it runs, or has ended and is made anew, as the kubelet
// does with the next attempt.
func (l *life) recreate() (done bool) {
	k := l.k
	switch s := k.container(l.containerID); s.State {
	case cri.ContainerState_CONTAINER_CREATED:
		return false
	case cri.ContainerState_CONTAINER_EXITED:
		k.Errorf("the container is %v: %d %s %s", s.State, s.ExitCode, s.Reason, s.Message)
	}
	for _, v := range verbs[3:] {
		k.ok(v.name+" after the crash", v.do(l, k.ctx()))
	}
	return true
}

// bystander is a pod that no crash of the daemon may harm.
type bystander struct {
	pod, container, ip string
	started            int64
}

func (k *kubelet) newBystander() bystander {
	k.Helper()
	pod, container := k.sleeper()
	return bystander{pod, container, k.podStatus(pod).Network.GetIp(), k.container(container).StartedAt}
}

// unharmed wants the pod to be ready with its address, and the container to have run all the time.
func (b bystander) unharmed(k *kubelet) {
	k.Helper()
	if s := k.podStatus(b.pod); s.State != cri.PodSandboxState_SANDBOX_READY || s.Network.GetIp() != b.ip {
		k.Errorf("another pod is %v with address %s, was ready with %s", s.State, s.Network.GetIp(), b.ip)
	}
	if s := k.container(b.container); s.State != cri.ContainerState_CONTAINER_RUNNING || s.StartedAt != b.started {
		k.Errorf("a container of another pod is %v", s)
	}
}
