package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// creations are the verbs that write a new record, with what must exist before.
var creations = []scenario{{"pod", nil, verbs[0]}, {"container", verbs[:1], verbs[1]}}

// createFunc makes a pod or a container.
type createFunc func(context.Context) error

// eachCreation runs body with an engine in which what comes before the creation exists.
func eachCreation(t *testing.T, body func(t *testing.T, m *machine, l *podLife, h *faults, create createFunc)) {
	for _, s := range creations {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				e, h := newEngine(t, m)
				l := &podLife{e: e, name: "web"}
				for _, earlier := range s.earlier {
					must(t, earlier.do(t.Context(), l))
				}
				body(t, m, l, h, func(ctx context.Context) error { return s.verb.do(ctx, l) })
			})
		})
	}
}

// TestAnswerWaitsForRecord: a pod or container is created while its record is being synced, and is neither listed nor
// returned before the sync has ended.
func TestAnswerWaitsForRecord(t *testing.T) {
	eachCreation(t, func(t *testing.T, m *machine, l *podLife, h *faults, create createFunc) {
		e, release := l.e, h.hold("commit")
		pods, processes := len(e.Pods()), m.pidsAlive()
		answer := make(chan error, 1)
		go func() { answer <- create(t.Context()) }()
		h.await("commit")
		synctest.Wait()
		if n := m.pidsAlive(); n != processes+1 {
			t.Errorf("%d processes before the record is synced, want the new one, too: %d", n, processes+1)
		}
		if n := len(e.Pods()); n != pods || len(e.Containers()) > 0 || len(answer) > 0 {
			t.Errorf("%d pods and %d containers are listed, %d answers, want %d, 0 and 0",
				n, len(e.Containers()), len(answer), pods)
		}
		records, _ := filepath.Glob(filepath.Join(m.dir, "root/pods/*"))
		for _, dir := range records { // a container's commit does not sync the pod's directory
			if _, err := os.Lstat(filepath.Join(dir, record.ContainersDir)); err != nil {
				t.Errorf("directory of the containers: %v, want it made before the pod's record is synced", err)
			}
		}
		release()
		must(t, <-answer)
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestRecordThatCannotBeSynced: it is as if the record could not have been written.
func TestRecordThatCannotBeSynced(t *testing.T) {
	eachCreation(t, func(t *testing.T, m *machine, l *podLife, h *faults, create createFunc) {
		h.fail("commit")
		if err := create(t.Context()); err == nil || !strings.Contains(err.Error(), "sync: "+errInjected.Error()) {
			t.Errorf("create = %v, want the error of the sync", err)
		}
		h.heal("commit")
		must(t, create(t.Context()))
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestRecordThatCannotBeWritten: no sync of it has begun, and none is waited for.
func TestRecordThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		e.deps.Budgets = &budget.Table{} // without limits
		web := mustRunPod(t, e, "web")
		var ended []operation.Operation
		e.operations.Observe = func(_ context.Context, o operation.Operation) { ended = append(ended, o) }
		large := map[string]string{"large": strings.Repeat("x", checkpoint.MaxSize)}
		pod, container := podConfig("large"), containerConfig("large")
		pod.Annotations, container.Annotations = large, large
		_, podErr := e.RunPod(t.Context(), pod, "")
		_, containerErr := e.CreateContainer(t.Context(), web, container)
		for _, err := range []error{podErr, containerErr} {
			if err == nil || !strings.HasPrefix(err.Error(), "record: ") {
				t.Errorf("creation = %v, want the error of the step %q", err, "record")
			}
		}
		if len(ended) != 2 {
			t.Errorf("%d operations have ended, want 2", len(ended))
		}
		for _, o := range ended {
			if stages := stageNames(o); slices.Contains(stages, stageSync) {
				t.Errorf("stages of %s = %q, want none that is %q", o.Verb, stages, stageSync)
			}
		}
		removeEverything(t, e)
		noLeaks(t, m)
	})
}

// TestUndoWaitsForRecord: what is being synced is not removed meanwhile, and the operation says what it waits for.
func TestUndoWaitsForRecord(t *testing.T) {
	eachCreation(t, func(t *testing.T, m *machine, l *podLife, h *faults, create createFunc) {
		release := h.hold("commit")
		h.fail("create")
		answer := make(chan error, 1)
		go func() { answer <- create(t.Context()) }()
		h.await("commit")
		synctest.Wait()
		unsyncedRecord(t, m)
		if under := l.e.Operations(); len(under) != 1 || under[0].Stage() != stageSync {
			t.Errorf("under way: %+v, want one operation in the stage %q", under, stageSync)
		}
		release()
		if err := <-answer; err == nil || !strings.Contains(err.Error(), errInjected.Error()) {
			t.Errorf("create = %v, want %v", err, errInjected)
		}
		h.heal("create")
		removeEverything(t, l.e)
		noLeaks(t, m)
	})
}

// TestEndBeforeRecord: podd is killed, or the power is lost, after a pod or container was made and before its record
// was synced, whatever is left of the record: nobody was told of it, so it is discarded, and nothing is called damaged.
func TestEndBeforeRecord(t *testing.T) {
	type end struct {
		boot   string
		damage func(path string) error // nil for none
	}
	ends := map[string]end{
		"killed": {"boot-1", nil},
		"whole": {"boot-2", func(path string) error {
			return os.Truncate(filepath.Join(filepath.Dir(path), record.StatusFile), 0)
		}},
	}
	for how, damage := range damages {
		if how != "absent" { // a file system with a journal does not lose a file and keep the name of its directory
			ends[how] = end{"boot-2", damage}
		}
	}
	for how, c := range ends {
		t.Run(how, func(t *testing.T) {
			eachCreation(t, func(t *testing.T, m *machine, l *podLife, h *faults, create createFunc) {
				before := len(l.e.Pods())
				endBeforeRecord(t, l.e, h, create)
				if c.damage != nil {
					m.reboot(t)
					must(t, c.damage(unsyncedRecord(t, m)))
				}
				e, log := recoverLogged(t, m, c.boot)
				if pods, containers := len(e.Pods()), len(e.Containers()); pods != before || containers > 0 {
					t.Errorf("%d pods and %d containers are listed, want %d and none", pods, containers, before)
				}
				if q := troubles(e, garbage.Quarantined); len(q) > 0 {
					t.Errorf("quarantined = %v, want none", q)
				}
				for _, entry := range log.AllEntries() {
					if entry.Level <= logrus.ErrorLevel {
						t.Errorf("logged %q, %v, want no error", entry.Message, entry.Data)
					}
				}
				removeEverything(t, e)
				noLeaks(t, m)
			})
		})
	}
}

// endBeforeRecord creates, and kills the engine when only the sync is missing.
func endBeforeRecord(t *testing.T, e *Engine, h *faults, create createFunc) {
	t.Helper()
	h.hold("commit")
	dead := h.runUntilDead(func(ctx context.Context) {
		go func() { _ = create(ctx) }() // its answer reaches nobody
		h.await("commit")
		synctest.Wait()
		h.kill()
	})
	if !dead {
		t.Error("the engine lives")
	}
	kill(e, h)
}

// unsyncedRecord returns the path of the only record that is not synced.
func unsyncedRecord(t *testing.T, m *machine) string {
	t.Helper()
	pods := filepath.Join(m.dir, "root/pods/*")
	found, _ := filepath.Glob(filepath.Join(pods, record.UnsyncedFile))
	inPods, _ := filepath.Glob(filepath.Join(pods, record.ContainersDir, "*", record.UnsyncedFile))
	if found = append(found, inPods...); len(found) != 1 {
		t.Fatalf("records that are not synced: %v, want one", found)
	}
	return found[0]
}

// recoverLogged starts an engine and waits until it has recovered and collected garbage.
func recoverLogged(t *testing.T, m *machine, boot string) (*Engine, *test.Hook) {
	t.Helper()
	e, _ := makeEngine(t, m, boot)
	logged := test.NewLocal(e.deps.Log.(*logrus.Logger))
	must(t, e.Recover(t.Context()))
	must(t, e.WaitRecovered(t.Context()))
	must(t, e.GC(t.Context()))
	synctest.Wait()
	return e, logged
}
