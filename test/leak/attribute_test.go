package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestNamesOfTests(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for text, want := range map[string]bool{
		"/tmp/podd-t-3378794520/run/netns/x":                                true,
		"tmpfs podd-test /":                                                 true,
		"/tmp/TestPods1234/001/netns":                                       true,
		"/dev/shm/podd-image-test-12-9/root":                                true,
		"unix:///tmp/podd-k8s-123/run/podd.sock":                            true,
		"/sys/fs/cgroup/memory/podd-t-12/podd-" + id:                        true,
		"/sys/fs/cgroup/poddt3378794520.slice":                              true,
		"/sys/fs/cgroup/memory/podd/podd-" + id:                             true,
		"/sys/fs/cgroup/podd/crio-" + id:                                    true,
		"/sys/fs/cgroup/podd-test-oci12":                                    true,
		"veth of pt3378794520":                                              true,
		"pk129-0a3f":                                                        true,
		`-A POSTROUTING -m comment --comment "name: \"pt33787\""`:           true,
		"pid 7 conmon: /usr/bin/conmon --bundle=/tmp/podd-t-1/b (cgroup /)": true,

		"/tmp/other":       false,
		"/home/tmp/podd-x": false,
		"/sys/fs/cgroup/kubepods.slice/pod1/podd-" + id: false,
		"/run/netns/cni-1234":                           false,
		"docker0":                                       false,
		"cni-podman0":                                   false,
		"bridge of ptp0":                                false,
		"pid 7 conmon: conmon --bundle /var/lib/podd/x (cgroup /a)":   false,
		"/var/lib/podd/containers/" + id:                              false,
		"iptables nat :CNI-1234567890abcdef -":                        false,
		"pid 9 containerd-shim-runc-v2: containerd-shim -n moby (/x)": false,
	} {
		if got := hasTestName(text); got != want {
			t.Errorf("hasTestName(%q) = %v, want %v", text, got, want)
		}
	}
}

// TestChainsAreAttributed checks that the chain of a pod of ours is recognized by the rules that name it.
func TestChainsAreAttributed(t *testing.T) {
	const chain, other = "CNI-0123456789abcdef", "CNI-fedcba9876543210"
	jump := "iptables nat -A POSTROUTING -m comment --comment \"name: \\\"pt33787\\\"\" -j " + chain
	before := Snapshot{"rule": {jump: ""}}
	after := Snapshot{"rule": {"iptables nat :" + chain + " -": "", "iptables nat :" + other + " -": ""}}
	got := map[string]bool{}
	for _, d := range before.Compare(after) {
		got[d.Key] = d.Ours
	}
	want := map[string]bool{jump: true, "iptables nat :" + chain + " -": true, "iptables nat :" + other + " -": false}
	for key, ours := range want {
		if g, ok := got[key]; !ok || g != ours {
			t.Errorf("%s: ours = %v, compared = %v, want %v", key, g, ok, ours)
		}
	}
}

// TestOthersAreReported makes and removes resources of another program between two snapshots: they are reported, and
// only what has a name of podd's tests is a leak.
func TestOthersAreReported(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts and namespaces need root")
	}
	mark := fmt.Sprintf("other%d", os.Getpid())
	base, err := os.MkdirTemp("/tmp", mark)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := func(name string) string {
		path := filepath.Join(base, name)
		command(t, "mkdir", path)
		return path
	}
	var expected []string
	removed := things(t, mark+"a", dir("removed"))
	for _, r := range removed {
		r.make(t)
	}
	o := Options{Match: []string{mark}, Wait: time.Millisecond}
	before := take(t, o)
	for _, r := range slices.Backward(removed) {
		r.undo(t)
		if slices.Contains(notOurs, r.kind) {
			expected = append(expected, fmt.Sprintf("lost:      %-8s ", r.kind))
		}
	}
	for _, m := range things(t, mark+"b", dir("made")) {
		m.make(t)
		t.Cleanup(func() { m.undo(t) })
		if m.kind != "file" { // no Options.Files
			expected = append(expected, fmt.Sprintf("left over: %-8s ", m.kind))
		}
	}
	ours, others, err := before.WaitForOurs(t.Context(), o)
	if err != nil || len(ours) > 0 {
		t.Errorf("WaitForOurs = %q, %v, want no difference of podd's", ours, err)
	}
	for _, want := range expected {
		if !slices.ContainsFunc(others, func(l string) bool { return strings.HasPrefix(l, want) }) {
			t.Errorf("WaitForOurs reports %q, want a line with %q", others, want)
		}
	}
	mountOurs(t, o, before)
}

// mountOurs leaves a mount of ours as well.
func mountOurs(t *testing.T, o Options, before Snapshot) {
	t.Helper()
	left := t.TempDir()
	command(t, "mount", "-t", "tmpfs", "none", left)
	t.Cleanup(func() { command(t, "umount", left) })
	o.Match = append(o.Match, left)
	ours, _, err := before.WaitForOurs(t.Context(), o)
	if err != nil || len(ours) != 1 || !strings.Contains(ours[0], left) {
		t.Errorf("WaitForOurs = %q, %v, want the mount on %s", ours, err, left)
	}
}
