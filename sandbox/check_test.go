package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/record"
)

// livePod is a pod with a running, a created and an exited container. The engine has come to rest.
func livePod(t *testing.T, m *machine, e *Engine) (pod, running string) {
	t.Helper()
	pod = mustRunPod(t, e, "web")
	running, exited := mustCreate(t, e, pod, "running"), mustCreate(t, e, pod, "exited")
	mustCreate(t, e, pod, "created")
	mustStart(t, e, running)
	mustStart(t, e, exited)
	m.exit(exited, oci.Exit{Known: true, At: time.Now()})
	waitExited(t, e, exited)
	synctest.Wait()
	return pod, running
}

func TestCheckFindsNothingWhereAllIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		livePod(t, m, e)
		other, _ := makeEngine(t, m, "boot-1")
		for name, engine := range map[string]*Engine{"the one at work": e, "another": other} {
			found, err := engine.Check(t.Context())
			must(t, err)
			if len(found) > 0 {
				t.Errorf("%s: Check = %+v, want nothing", name, found)
			}
		}
		if e.store.pods.List(nil)[0].Status().State != record.PodReady || m.pidsAlive() != 3 {
			t.Error("a check changed something")
		}
	})
}

func TestCheckFinds(t *testing.T) {
	leak := func(what string) Finding { return Finding{Problem: FindingLeak, What: what, ID: "orphan"} }
	for name, c := range map[string]struct {
		harm func(t *testing.T, m *machine, pod, container string)
		// dead kills the engine before, which would notice the harm and write a record of it.
		dead bool
		want []Finding // an ID is "pod", "container" or as it is
	}{
		"a root filesystem too many": {
			harm: func(t *testing.T, m *machine, _, _ string) { m.makeRootfs(t, "orphan") },
			want: []Finding{leak(garbage.Rootfs)}},
		"a root filesystem too few": {
			harm: func(t *testing.T, m *machine, _, c string) { must(t, m.images.Release(t.Context(), c)) },
			want: []Finding{{Problem: FindingMissing, What: garbage.Rootfs, ID: "container"}}},
		"an attachment too many": {
			harm: func(t *testing.T, m *machine, _, _ string) { m.attach(t, "orphan") },
			want: []Finding{
				{Problem: FindingLeak, What: kindAddress, ID: "orphan", Detail: "10.88.0.3 fd88::3"},
				leak(garbage.Attachment),
			}},
		"an attachment too few": {
			harm: func(t *testing.T, m *machine, p, _ string) { must(t, m.network.Teardown(t.Context(), p)) },
			want: []Finding{{Problem: FindingMissing, What: garbage.Attachment, ID: "pod"}}},
		"an address too many": {
			harm: func(t *testing.T, m *machine, _, _ string) { m.attach(t, "orphan"); m.network.Lose("orphan") },
			want: []Finding{{Problem: FindingLeak, What: kindAddress, ID: "orphan", Detail: "10.88.0.3 fd88::3"}}},
		"a network namespace too few": {
			harm: func(t *testing.T, m *machine, p, _ string) {
				must(t, m.namespaces.Unpin(t.Context(), filepath.Join(m.netnsDir, "podd-"+p)))
			},
			want: []Finding{{Problem: FindingMissing, What: garbage.Netns, ID: "pod"}}},
		"a bundle too many": {
			harm: func(t *testing.T, m *machine, _, _ string) { must(t, os.MkdirAll(m.bundle("orphan"), 0o700)) },
			want: []Finding{leak(garbage.Container)}},
		"a file too few": {
			harm: func(t *testing.T, m *machine, p, _ string) {
				must(t, os.Remove(filepath.Join(m.dir, "run/etc", p, "hosts")))
			},
			want: []Finding{{Problem: FindingMissing, What: "pod file " + "hosts", ID: "pod"}}},
		"a process too few": {
			harm: func(_ *testing.T, m *machine, _, c string) { m.exit(c, oci.Exit{Known: true, At: time.Now()}) },
			dead: true,
			want: []Finding{
				{Problem: FindingMissing, What: "process", ID: "container", Detail: "the runtime says stopped"},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				e, h := newEngine(t, m)
				pod, id := livePod(t, m, e)
				if c.dead {
					kill(e, h)
					e, _ = makeEngine(t, m, "boot-1")
				}
				c.harm(t, m, pod, id)
				checkFinds(t, e, findingsOf(c.want, pod, id))
				if c.dead {
					must(t, e.Recover(t.Context()))
				}
				freeFindings(t, e, c.want)
			})
		})
	}
}

// findingsOf replaces the ids "pod" and "container".
func findingsOf(findings []Finding, pod, container string) []Finding {
	findings = slices.Clone(findings)
	for i, f := range findings {
		switch f.ID {
		case "pod":
			findings[i].ID = pod
		case "container":
			findings[i].ID = container
		}
	}
	return findings
}

func checkFinds(t *testing.T, e *Engine, want []Finding) {
	t.Helper()
	got, err := e.Check(t.Context())
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("Check = %+v, want %+v", got, want)
	}
}

// freeFindings frees what leaked, and checks again.
func freeFindings(t *testing.T, e *Engine, findings []Finding) {
	t.Helper()
	leaks := false
	for _, f := range findings {
		leaks = leaks || f.Problem == FindingLeak
		if f.Address() {
			must(t, e.FreeAddress(t.Context(), f.ID))
		}
	}
	must(t, e.GC(t.Context()))
	if leaks {
		checkFinds(t, e, nil)
		return
	}
	_, err := e.Check(t.Context())
	must(t, err)
}

func TestCheckClaimsForRecordsThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		pod, id := livePod(t, m, e)
		truncate(t, recordsOf(m, pod, id)["pod record"], 3)
		found, err := e.Check(t.Context())
		must(t, err)
		if len(found) != 1 || found[0].Problem != FindingRecord || found[0].ID != pod {
			t.Errorf("Check = %+v, want one unreadable record of %s", found, pod)
		}
	})
}

func TestRemoveAllLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		livePod(t, m, e)
		mustRunPod(t, e, "other")
		m.makeRootfs(t, "orphan")
		e, _ = restart(t, m, e, h)
		m.makeRootfs(t, "orphan2")
		things, err := e.Inventory(t.Context())
		must(t, err)
		count := map[string]int{}
		for _, thing := range things {
			count[thing.What]++
		}
		if count["pod"] != 2 || count["container"] != 3 || count[garbage.Rootfs+" on the machine"] != 4 ||
			count[garbage.Netns+" on the machine"] != 2 {
			t.Errorf("Inventory has %v, want 2 pods, 3 containers, 4 root filesystems and 2 network namespaces", count)
		}
		must(t, e.WaitRecovered(t.Context()))
		must(t, e.RemoveAll(t.Context()))
		must(t, e.GC(t.Context()))
		noLeaks(t, m)
	})
}

func TestDamagedNetworkRecordKeepsNoPod(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	h.on("teardown", func(_ context.Context, id string) error {
		if slices.Contains(m.attachments(), id) {
			return fmt.Errorf("attachment of %s: %w", id, network.ErrDamaged)
		}
		return nil
	})
	must(t, e.StopPod(t.Context(), pod))
	if !slices.Contains(h.callNames(), "abandon") {
		t.Errorf("calls = %v, want abandon among them", h.callNames())
	}
	m.attach(t, "orphan")
	must(t, e.GC(t.Context()))
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}
