package sandbox

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/sandbox/usage"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// runPodIn runs a pod below a cgroup_parent.
func runPodIn(t *testing.T, e *Engine, name, parent, uid string) string {
	t.Helper()
	cfg := podConfig(name)
	cfg.Metadata.Uid = uid
	cfg.Linux.CgroupParent = parent
	id, err := e.RunPod(t.Context(), cfg, "")
	must(t, err)
	return id
}

// TestPodUsage: the pod's own group tells what it uses, where it has one; else its containers do.
func TestPodUsage(t *testing.T) {
	const uid = "7e9d1fb8-0c7a-4b7e-9d55-0123456789ab"
	for name, tt := range map[string]struct {
		parent, group string
		systemd       bool
		children      string // ID and POD stand for the ids
		own           bool
	}{
		"no parent": {},
		"kubelet, cgroupfs": {parent: "/kubepods/burstable/pod" + uid, group: "/kubepods/burstable/pod" + uid,
			children: "podd-ID crio-abc", own: true},
		"kubelet, systemd": {parent: "/kubepods.slice/kubepods-pod7e9d1fb8_0c7a_4b7e_9d55_0123456789ab.slice",
			group: "/kubepods.slice/kubepods-pod7e9d1fb8_0c7a_4b7e_9d55_0123456789ab.slice", systemd: true, own: true},
		"its own by what is in it": {parent: "/mine", group: "/mine", children: "podd-ID podd-POD", own: true},
		"shared":                   {parent: "/all", group: "/all", children: "podd-ID podd-other"},
		"system.slice": {parent: "system.slice", group: "/system.slice", systemd: true,
			children: "sshd.service podd-ID.scope"},
		"not there": {parent: "/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := measuring(t)
			e.node.SystemdCgroup = tt.systemd
			pod := runPodIn(t, e, "web", tt.parent, uid)
			one, _ := running(t, e, f, pod, "one")
			two, _ := running(t, e, f, pod, "two")
			f.add(groupOf(pod))
			if tt.group != "" {
				g := f.add(tt.group)
				g.children = strings.Fields(strings.NewReplacer("ID", one, "POD", pod).Replace(tt.children))
			}
			u := e.PodUsage(t.Context(), []string{pod, "absent"}, usage.Want{})[pod]
			if len(u.Containers) != 2 || u.Containers[one].Usage == nil || u.Containers[two].Usage == nil {
				t.Errorf("containers %v", u.Containers)
			}
			if own := u.Path != ""; own != tt.own || own && u.Path != tt.group {
				t.Fatalf("path %q", u.Path)
			}
			checkPodFigures(t, u, tt.own)
		})
	}
}

func checkPodFigures(t *testing.T, u usage.Pod, own bool) {
	t.Helper()
	n := uint64(3) // containers, one of them the infra container
	if own {
		n = 1
	}
	if m := u.Usage.Memory; m.Usage != n*100 || m.WorkingSet != n*80 || m.RSS != n*60 || m.PageFaults != n*5 {
		t.Errorf("memory %+v", m)
	}
	if u.Usage.Pids.Current != n*2 || u.Usage.Swap.Usage != n*7 {
		t.Errorf("pids %+v, swap %+v", u.Usage.Pids, u.Usage.Swap)
	}
	if limited := u.Usage.Memory.Limit != cgroups.Unlimited; limited != own {
		t.Errorf("memory limit %d", u.Usage.Memory.Limit)
	}
	if pressure := u.Usage.CPUPressure != nil; pressure != own {
		t.Errorf("pressure %v: it cannot be added up", u.Usage.CPUPressure)
	}
	if u.NanoCores == nil || u.Usage.CPU.Total <= 0 {
		t.Errorf("CPU %+v, rate %v", u.Usage.CPU, u.NanoCores)
	}
}

// TestSharedParentIsLookedAtSeldom: a pod without a group of its own costs nothing at each list.
func TestSharedParentIsLookedAtSeldom(t *testing.T) {
	e, f := measuring(t)
	pod := runPodIn(t, e, "web", "/all", "uid")
	g := f.add("/all")
	g.children = []string{"somebody"}
	for range 5 {
		e.PodUsage(t.Context(), []string{pod}, usage.Want{})
	}
	if n := f.reads("/all"); n != 1 {
		t.Errorf("looked at %d times", n)
	}
}

func TestOnlyReadyPodsAreMeasured(t *testing.T) {
	e, _ := measuring(t)
	pod := mustRunPod(t, e, "web")
	must(t, e.StopPod(t.Context(), pod))
	if got := e.PodUsage(t.Context(), []string{pod}, usage.Want{}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}
