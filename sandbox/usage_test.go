package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/usage"
)

func TestContainerUsage(t *testing.T) {
	e, f := measuring(t)
	pod := mustRunPod(t, e, "web")
	run, _ := running(t, e, f, pod, "run")
	created := mustCreate(t, e, pod, "created")
	f.add(groupOf(created))
	exited, _ := running(t, e, f, pod, "exited")
	if len(e.ContainerUsage(t.Context(), []string{exited}, usage.Want{})) != 1 {
		t.Error("a running container is not measured")
	}
	must(t, e.StopContainer(t.Context(), exited, 0))
	ungrouped := mustCreate(t, e, pod, "ungrouped")

	got := e.ContainerUsage(t.Context(), []string{run, created, exited, ungrouped, "absent", run[:10]}, usage.Want{})
	if want := slices.Sorted(slices.Values([]string{run, created})); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Fatalf("measured %v, want %v", slices.Sorted(maps.Keys(got)), want)
	}
	u := got[run]
	if u.Path != groupOf(run) || u.Usage.Memory.RSS != 60 || u.Writable.Bytes != 4096 || u.Details != nil ||
		u.NanoCores == nil {
		t.Errorf("got %+v", u)
	}
	if e.Writable(exited) == nil {
		t.Error("what an exited container has written is not known")
	}
	if fs, device := e.Filesystem(); fs.Bytes != 1<<30 || device != "disk8" {
		t.Errorf("disk %+v %q", fs, device)
	}
}

// TestNothingMeasures: an engine without control groups or disk still answers.
func TestNothingMeasures(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	pod := mustRunPod(t, e, "web")
	id := mustCreate(t, e, pod, "main")
	if got := e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: true}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	if got, ok := e.PodUsage(t.Context(), []string{pod}, usage.Want{})[pod]; !ok || got.Usage != nil {
		t.Errorf("got %+v", got)
	}
	if fs, device := e.Filesystem(); e.Writable(id) != nil || fs.Bytes != 0 || device != "" {
		t.Error("an unknown disk is known")
	}
}

// TestFreshness: who asks twice in a second gets the same sample, and details are older still.
func TestFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		id, group := running(t, e, f, mustRunPod(t, e, "web"), "main")
		ask := func(details bool) usage.Container {
			return e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: details})[id]
		}
		first := ask(false)
		time.Sleep(usage.Freshness - time.Millisecond)
		if again := ask(false); again.Usage != first.Usage || f.reads(group.path) != 1 {
			t.Errorf("measured again after %v", time.Since(first.Usage.At))
		}
		time.Sleep(time.Millisecond)
		if again := ask(false); again.Usage == first.Usage {
			t.Error("not measured after a second")
		}
		detailed := ask(true)
		if detailed.Details == nil {
			t.Fatal("no details")
		}
		time.Sleep(e.cfg.Load().StatsInterval - time.Millisecond)
		if again := ask(true); again.Details != detailed.Details || again.Usage == detailed.Usage {
			t.Error("details were read before they were due, or usage was not")
		}
		if again := ask(false); again.Details != detailed.Details {
			t.Error("details were forgotten")
		}
		time.Sleep(time.Millisecond)
		if again := ask(true); again.Details == detailed.Details {
			t.Error("details were not read when they were due")
		}
	})
}

// TestStuckContainer: one that the kernel does not answer for delays a list once, by little, and no list after that.
func TestStuckContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		pod := mustRunPod(t, e, "web")
		var ids []string
		var groups []*fakeGroup
		for i := range 20 {
			id, g := running(t, e, f, pod, fmt.Sprint("c", i))
			ids, groups = append(ids, id), append(groups, g)
		}
		list := func() (map[string]usage.Container, time.Duration) {
			time.Sleep(usage.Freshness)
			start := time.Now()
			return e.ContainerUsage(t.Context(), ids, usage.Want{}), time.Since(start)
		}
		if got, took := list(); len(got) != 20 || took != 0 {
			t.Fatalf("%d containers in %v", len(got), took)
		}
		stuck := make(chan struct{})
		f.mu.Lock()
		groups[0].block = stuck
		f.mu.Unlock()
		got, took := list()
		if len(got) != 20 || took != usage.Patience {
			t.Errorf("first list: %d containers in %v", len(got), took)
		}
		if age := time.Since(got[ids[0]].Usage.At); age < usage.Freshness {
			t.Errorf("the stuck one was measured %v ago", age)
		}
		if age := time.Since(got[ids[1]].Usage.At); age > usage.Patience {
			t.Errorf("another one was measured %v ago", age)
		}
		for range 5 {
			if got, took := list(); len(got) != 20 || took != 0 {
				t.Errorf("later list: %d containers in %v", len(got), took)
			}
		}
		close(stuck)
		synctest.Wait()
		if got, _ := list(); time.Since(got[ids[0]].Usage.At) != 0 {
			t.Error("not measured again when the kernel answered")
		}
	})
}

// TestStuckFromTheStart: one that was never measured is waited for longer, and left out then.
func TestStuckFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		pod := mustRunPod(t, e, "web")
		stuck, g := running(t, e, f, pod, "stuck")
		fine, _ := running(t, e, f, pod, "fine")
		g.block = make(chan struct{})
		for _, wait := range []time.Duration{usage.FirstPatience, 0, 0} {
			start := time.Now()
			got := e.ContainerUsage(t.Context(), []string{stuck, fine}, usage.Want{})
			if _, ok := got[fine]; len(got) != 1 || !ok || time.Since(start) != wait {
				t.Errorf("measured %v in %v, want %v", slices.Collect(maps.Keys(got)), time.Since(start), wait)
			}
		}
		e.usage.Close()
		if n := f.openGroups(); n != 1 {
			t.Errorf("%d groups are open, want the stuck one", n)
		}
		close(g.block)
		synctest.Wait()
		if n := f.openGroups(); n != 0 {
			t.Errorf("%d groups are open", n)
		}
	})
}

// TestCallerGivesUp: the wait ends with the caller's context.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		id, g := running(t, e, f, mustRunPod(t, e, "web"), "main")
		g.block = make(chan struct{})
		ctx, cancel := contextWithTimeout(t, time.Millisecond)
		defer cancel()
		start := time.Now()
		e.ContainerUsage(ctx, []string{id}, usage.Want{})
		if took := time.Since(start); took != time.Millisecond {
			t.Errorf("waited %v", took)
		}
		close(g.block)
		synctest.Wait()
	})
}

// TestGroupsAreClosed: nothing stays open of what has ended.
func TestGroupsAreClosed(t *testing.T) {
	e, f := measuring(t)
	pod := mustRunPod(t, e, "web")
	f.add(groupOf(pod)) // of the infra container
	var ids []string
	for i := range 3 {
		id, _ := running(t, e, f, pod, fmt.Sprint("c", i))
		ids = append(ids, id)
	}
	e.PodUsage(t.Context(), []string{pod}, usage.Want{})
	if n := f.openGroups(); n != 4 {
		t.Fatalf("%d groups are open, want those of 3 containers and the infra container", n)
	}
	must(t, e.StopContainer(t.Context(), ids[0], 0))
	for deadline := time.Now().Add(10 * time.Second); f.openGroups() != 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // the stop returns when the exit is published, which comes first
			t.Fatalf("%d groups are open after one container has exited", f.openGroups())
		}
	}
	must(t, e.StopPod(t.Context(), pod))
	if n := f.openGroups(); n != 0 {
		t.Errorf("%d groups are open after the pod has stopped", n)
	}
	e.PodUsage(t.Context(), []string{pod}, usage.Want{})
	e.ContainerUsage(t.Context(), ids, usage.Want{})
	if n := f.openGroups(); n != 0 {
		t.Errorf("%d groups were opened of a pod that has stopped", n)
	}
}

// TestGroupThatGoes: a group that is gone before its container's exit is seen.
func TestGroupThatGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		id, g := running(t, e, f, mustRunPod(t, e, "web"), "main")
		ask := func() int { return len(e.ContainerUsage(t.Context(), []string{id}, usage.Want{})) }
		if ask() != 1 {
			t.Fatal("not measured")
		}
		g.gone = true
		time.Sleep(usage.Freshness)
		if n := ask(); n != 0 || f.openGroups() != 0 {
			t.Errorf("%d measured, %d open", n, f.openGroups())
		}
		g.gone, g.err = false, errors.New("input/output error")
		if ask() != 0 {
			t.Error("measured in spite of an error")
		}
		opened := f.opened
		if ask(); f.opened != opened {
			t.Error("a group that fails is opened at every call")
		}
		g.err = nil
		time.Sleep(e.cfg.Load().StatsInterval)
		if ask() != 1 {
			t.Error("not measured when the error had gone")
		}
	})
}

// TestCollect: rates are there for the first who asks, and what has ended is let go.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, f := measuring(t)
		pod := mustRunPod(t, e, "web")
		id, g := running(t, e, f, pod, "main")
		e.work.Go(func() { e.usage.Run(e.life.Context(), e.usageTargets) })
		time.Sleep(10 * e.cfg.Load().StatsInterval)
		synctest.Wait()
		if n := f.reads(g.path); n < 9 || n > 10 {
			t.Errorf("read %d times in 10 intervals", n)
		}
		u := e.ContainerUsage(t.Context(), []string{id}, usage.Want{})[id]
		if u.NanoCores == nil || *u.NanoCores < 999e6 || *u.NanoCores > 1001e6 {
			t.Errorf("rate of one core: %v", u.NanoCores)
		}
		if u.Details != nil {
			t.Error("details were collected for nobody")
		}
		e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: true})
		time.Sleep(2 * e.cfg.Load().StatsInterval)
		synctest.Wait()
		u = e.ContainerUsage(t.Context(), []string{id}, usage.Want{})[id]
		if age := time.Since(u.Details.At); age > e.cfg.Load().StatsInterval {
			t.Errorf("details are %v old", age)
		}
		time.Sleep(usage.Freshness)
		for _, fresh := range []bool{false, true} {
			u := e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: true, Fresh: fresh})[id]
			if measured := time.Since(u.Details.At) < usage.Freshness; measured != fresh {
				t.Errorf("details asked with Fresh %t were measured anew: %t, want %t", fresh, measured, fresh)
			}
		}
		e.life.End(errClosing)
		synctest.Wait()
		if n := f.openGroups(); n != 0 {
			t.Errorf("%d groups are open after the end", n)
		}
	})
}

// TestCollectForgetsDeadPods: a pod that is not ready any more is let go without a stop.
func TestCollectForgetsDeadPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		f := newFakeCgroups()
		e.deps.Cgroups = f
		e.usage = newCollector(*e.cfg.Load(), e.deps)
		pod := mustRunPod(t, e, "web")
		f.add(groupOf(pod))
		e.PodUsage(t.Context(), []string{pod}, usage.Want{})
		if f.openGroups() != 1 {
			t.Fatal("the infra container is not measured")
		}
		m.exit(pod, oci.Exit{})
		synctest.Wait()
		e.usage.Round(t.Context(), e.usageTargets)
		if n := f.openGroups(); n != 0 {
			t.Errorf("%d groups are open", n)
		}
	})
}

// TestDetailsThatFail: usage is told without them.
func TestDetailsThatFail(t *testing.T) {
	e, f := measuring(t)
	id, g := running(t, e, f, mustRunPod(t, e, "web"), "main")
	g.detailsErr = errInjected
	u, ok := e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: true})[id]
	if !ok || u.Usage == nil || u.Details != nil {
		t.Errorf("got %+v, %v", u, ok)
	}
	g.detailsErr = nil
	if u := e.ContainerUsage(t.Context(), []string{id}, usage.Want{Details: true})[id]; u.Details == nil {
		t.Error("no details when they could be read")
	}
}
