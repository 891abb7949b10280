package sandbox

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// livePod is a pod with a running, a created and an exited container.
func livePod(t *testing.T, m *machine, e *Engine, h *fakeHost) (pod, running string) {
	t.Helper()
	pod = mustRunPod(t, e, "web")
	running, exited := mustCreate(t, e, pod, "running"), mustCreate(t, e, pod, "exited")
	mustCreate(t, e, pod, "created")
	mustStart(t, e, running)
	mustStart(t, e, exited)
	m.exit(exited, oci.Exit{Known: true, At: time.Now()})
	waitExited(t, e, exited)
	h.quiesce(t)
	return pod, running
}

func TestCheckFindsNothingWhereAllIsWell(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	livePod(t, m, e, h)
	for name, engine := range map[string]*Engine{"the one at work": e, "another": func() *Engine { other, _ := makeEngine(t, m, "boot-1"); return other }()} {
		found, err := engine.Check(t.Context())
		must(t, err)
		if len(found) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if e.store.podList()[0].Status().State != record.PodReady || m.pidsAlive() != 3 {
		t.Error("a check changed something")
	}
}

func TestCheckFinds(t *testing.T) {
	lock := func(m *machine, f func()) { m.mu.Lock(); defer m.mu.Unlock(); f() }
	for name, c := range map[string]struct {
		harm func(t *testing.T, m *machine, pod, container string)
		want Finding // its ID is "pod", "container" or as it is
	}{
		"a root filesystem too many": {
			func(_ *testing.T, m *machine, _, _ string) { lock(m, func() { m.rootfs["orphan"] = true }) },
			Finding{Problem: FindingLeak, What: whatRootfs, ID: "orphan"}},
		"a root filesystem too few": {
			func(_ *testing.T, m *machine, _, c string) { lock(m, func() { delete(m.rootfs, c) }) },
			Finding{Problem: FindingMissing, What: whatRootfs, ID: "container"}},
		"an attachment too many": {
			func(_ *testing.T, m *machine, _, _ string) { lock(m, func() { m.attached["orphan"] = true }) },
			Finding{Problem: FindingLeak, What: whatAttachment, ID: "orphan"}},
		"an attachment too few": {
			func(_ *testing.T, m *machine, p, _ string) { lock(m, func() { delete(m.attached, p) }) },
			Finding{Problem: FindingMissing, What: whatAttachment, ID: "pod"}},
		"an address too many": {
			func(_ *testing.T, m *machine, _, _ string) {
				lock(m, func() { m.leases["orphan"] = []string{"10.0.0.7", "fd00::7"} })
			},
			Finding{Problem: FindingLeak, What: whatAddress, ID: "orphan", Detail: "10.0.0.7 fd00::7"}},
		"a network namespace too few": {
			func(t *testing.T, m *machine, p, _ string) { must(t, os.Remove(filepath.Join(m.dir, "run/netns", p))) },
			Finding{Problem: FindingMissing, What: whatNetns, ID: "pod"}},
		"a bundle too many": {
			func(t *testing.T, m *machine, _, _ string) { must(t, os.MkdirAll(m.bundle("orphan"), 0o700)) },
			Finding{Problem: FindingLeak, What: whatContainer, ID: "orphan"}},
		"a file too few": {
			func(t *testing.T, m *machine, p, _ string) {
				must(t, os.Remove(filepath.Join(m.dir, "run/pods", p, hostsFile)))
			},
			Finding{Problem: FindingMissing, What: "pod file " + hostsFile, ID: "pod"}},
		"a process too few": {
			func(_ *testing.T, m *machine, _, c string) { lock(m, func() { m.containers[c].status = oci.Stopped }) },
			Finding{Problem: FindingMissing, What: "process", ID: "container", Detail: "the runtime says stopped"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, h := newEngine(t, m)
			pod, id := livePod(t, m, e, h)
			c.harm(t, m, pod, id)
			want := c.want
			switch want.ID {
			case "pod":
				want.ID = pod
			case "container":
				want.ID = id
			}
			found, err := e.Check(t.Context())
			must(t, err)
			if !slices.Equal(found, []Finding{want}) {
				t.Errorf("found %+v, want %+v", found, want)
			}
			if want.Address() {
				must(t, e.FreeAddress(t.Context(), want.ID))
			}
			must(t, e.Collect(t.Context()))
			if found, err = e.Check(t.Context()); err != nil || want.Problem == FindingLeak && len(found) > 0 {
				t.Errorf("after it was collected: %+v, %v", found, err)
			}
		})
	}
}

func TestCheckClaimsForRecordsThatCannotBeRead(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod, id := livePod(t, m, e, h)
	truncate(t, recordsOf(m, pod, id)["pod record"], 3)
	found, err := e.Check(t.Context())
	must(t, err)
	if len(found) != 1 || found[0].Problem != FindingRecord || found[0].ID != pod {
		t.Errorf("found %+v", found)
	}
}

func TestRemoveAllLeavesNothing(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	livePod(t, m, e, h)
	mustRunPod(t, e, "other")
	m.mu.Lock()
	m.rootfs["orphan"] = true
	m.mu.Unlock()
	e, _ = restart(t, m, e, h)
	m.mu.Lock()
	m.rootfs["orphan2"] = true
	m.mu.Unlock()
	things, err := e.Inventory(t.Context())
	must(t, err)
	count := map[string]int{}
	for _, thing := range things {
		count[thing.What]++
	}
	if count["pod"] != 2 || count["container"] != 3 || count[whatRootfs+" on the machine"] != 4 || count[whatNetns+" on the machine"] != 2 {
		t.Errorf("inventory %v", count)
	}
	must(t, e.Settled(t.Context()))
	must(t, e.RemoveAll(t.Context()))
	must(t, e.Collect(t.Context()))
	noLeaks(t, m)
}

func TestDamagedNetworkRecordKeepsNoPod(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	e.Network = damagedNetwork{h}
	must(t, e.StopPod(t.Context(), pod))
	if !slices.Contains(h.callNames(), "cni abandon") {
		t.Errorf("calls %v", h.callNames())
	}
	m.mu.Lock()
	m.attached["orphan"] = true
	m.mu.Unlock()
	must(t, e.Collect(t.Context()))
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

// damagedNetwork cannot make sense of its records.
type damagedNetwork struct{ *fakeHost }

func (d damagedNetwork) Teardown(ctx context.Context, podID string) error {
	if slices.Contains(d.m.keys(d.m.attached), podID) {
		return fmt.Errorf("attachment of %s: %w", podID, network.ErrDamaged)
	}
	return nil
}
