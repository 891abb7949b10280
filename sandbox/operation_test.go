package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

func stageNames(o operation.Operation) []string {
	var names []string
	for _, s := range o.Stages {
		names = append(names, s.Name)
	}
	return names
}

func TestOperationsTellTheirStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		var mu sync.Mutex
		var ended []operation.Operation
		type key struct{}
		e.operations.Observe = func(ctx context.Context, o operation.Operation) {
			mu.Lock()
			defer mu.Unlock()
			if ctx.Value(key{}) != "trace" {
				t.Errorf("%s: the caller's context is lost", o.Verb)
			}
			ended = append(ended, o)
		}
		l := &podLife{e: e, name: "web"}
		for _, v := range verbs[:6] { // up to the container's removal
			must(t, v.do(context.WithValue(t.Context(), key{}, "trace"), l))
		}
		synctest.Wait()
		p, err := e.Pod(l.pod)
		must(t, err)
		for _, c := range []struct {
			verb   string
			stages []string
		}{
			{operation.RunPod, []string{"record", "namespaces", "network", "files", "infra container", "plugins", "sync"}},
			{operation.CreateContainer, []string{
				"record", "image", "log", "rootfs", "volumes", "image volumes", "spec", "plugins", "mount options",
				"create", "verify", "sync",
			}},
			{operation.StartContainer, []string{"plugins", "start", "record"}},
			{operation.ExecSync, []string{"command"}},
			{operation.StopContainer, []string{"kill"}},
			{operation.RemoveContainer, []string{
				"stop", "wait for another operation", "delete container", "release root filesystem", "remove record",
			}},
		} {
			i := slices.IndexFunc(ended, func(o operation.Operation) bool { return o.Verb == c.verb })
			if i < 0 {
				t.Errorf("%s was not observed", c.verb)
				continue
			}
			o := ended[i]
			if !slices.Equal(stageNames(o), c.stages) || !o.Done || o.Error != "" || o.Pod != l.pod ||
				!strings.HasPrefix(o.Name, "default/web") {
				t.Errorf("%s was observed as %+v, want it done, without an error, with the stages %q", c.verb, o, c.stages)
			}
			var sum operation.Duration
			for _, s := range o.Stages {
				if s.After < sum {
					t.Errorf("%s: stage %s begins at %v, before the one before it ended at %v", c.verb, s.Name, s.After, sum)
				}
				sum = s.After + s.Took
			}
			if sum > o.Took {
				t.Errorf("%s: stages take %v, the whole %v", c.verb, sum, o.Took)
			}
		}
		if kept := p.Operations(); len(kept) != 1 || kept[0].Verb != operation.RunPod {
			t.Errorf("kept of the pod: %+v", kept)
		}
		if under := e.Operations(); len(under) > 0 {
			t.Errorf("still under way: %+v", under)
		}
	})
}

func TestSlowOperationIsListedAndLoggedOnceWithItsStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		log.SetFormatter(&logrus.JSONFormatter{})
		e.operations.Log = log
		release := h.hold("setup")
		done := make(chan error)
		go func() {
			_, err := e.RunPod(t.Context(), podConfig("web"), "")
			done <- err
		}()
		time.Sleep(4 * slowOperation)
		synctest.Wait()
		under := e.Operations()
		if len(under) != 1 || under[0].Stage() != "network" || time.Duration(under[0].Took) != 4*slowOperation ||
			under[0].Done {
			t.Errorf("under way: %+v", under)
		}
		var line struct{ Msg, Verb, Stage, Pod, Age string }
		if err := json.Unmarshal(out.Bytes(), &line); err != nil { // two lines are no JSON
			t.Fatalf("log is no single line of JSON: %v: %s, want one", err, out.String())
		}
		if line.Msg != "slow operation" || line.Verb != operation.RunPod || line.Stage != "network" ||
			line.Pod != under[0].Pod || line.Age != time.Duration(slowOperation).String() {
			t.Errorf("logged %+v, want the slow operation %+v", line, under[0])
		}
		release()
		must(t, <-done)
		h.kill()
		e.life.End(errClosing)
	})
}

func TestWhatTheCallerAskedToWaitForIsNotSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h, id := stubbornContainer(t, m)
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		e.operations.Log = log
		grace := 10 * slowOperation
		release := h.hold("exec")
		go e.ExecSync(t.Context(), id, []string{"true"}, 0)
		go e.StopContainer(t.Context(), id, grace)
		time.Sleep(grace - time.Second)
		synctest.Wait()
		under := e.Operations()
		if len(under) != 2 || under[0].Stage() != "command" && under[1].Stage() != "command" {
			t.Errorf("under way: %+v", under)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := container(t, e, id); s.State != record.ContainerExited {
			t.Errorf("status = %+v, want %s", s, record.ContainerExited)
		}
		if out.Len() > 0 {
			t.Errorf("logged %s, want nothing", out.String())
		}
		release()
		h.kill()
		e.life.End(errClosing)
	})
}

func TestOperationSurvivesJSON(t *testing.T) {
	want := operation.Operation{
		Verb: operation.RunPod, Pod: "p", Name: "n/p", Began: time.Unix(1700000000, 0).UTC(),
		Took: operation.Duration(1500 * time.Millisecond), Done: true,
		Stages: []operation.Stage{{
			Name: "network", After: operation.Duration(time.Millisecond), Took: operation.Duration(20 * time.Microsecond),
		}},
	}
	data, err := json.Marshal(want)
	must(t, err)
	var got operation.Operation
	must(t, json.Unmarshal(data, &got))
	if again, _ := json.Marshal(got); !bytes.Equal(data, again) || got.Stages[0] != want.Stages[0] {
		t.Errorf("%s came back as %+v", data, got)
	}
}

func TestOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, h := newEngine(t, m)
		if owed := troubles(e, garbage.Cleanup); len(owed) > 0 {
			t.Errorf("a new engine owes %v", owed)
		}
		pod := mustRunPod(t, e, "web")
		h.fail("teardown")
		time.Sleep(time.Second) // operations are in the order of their time
		if err := e.StopPod(t.Context(), pod); !errors.Is(err, errInjected) {
			t.Fatalf("StopPod = %v, want %v", err, errInjected)
		}
		owed := troubles(e, garbage.Cleanup)
		if len(owed) != 1 || owed[0].ID != pod || !strings.Contains(owed[0].Error, "injected") {
			t.Errorf("cleanups = %+v, want the failed teardown of %s", owed, pod)
		}
		p, err := e.Pod(pod)
		must(t, err)
		if last := p.Operations(); len(last) != 2 || last[1].Verb != operation.StopPod ||
			!strings.Contains(last[1].Error, "injected") {
			t.Errorf("Operations = %+v, want %s and %s, which failed", last, operation.RunPod, operation.StopPod)
		}
		h.heal("teardown")
		must(t, e.StopPod(t.Context(), pod))
		if owed := troubles(e, garbage.Cleanup); len(owed) > 0 {
			t.Errorf("owed %+v after the pod was stopped", owed)
		}
		id := mustRunPod(t, e, "other")
		infra, err := e.Pod(id)
		must(t, err)
		m.exit(id, oci.Exit{Code: 1, Known: true, At: time.Now()})
		synctest.Wait()
		if got := infra.Status().State; got != record.PodNotReady {
			t.Errorf("state of a pod whose infra container ended = %s, want %s", got, record.PodNotReady)
		}
		if owed := troubles(e, garbage.Cleanup); len(owed) != 1 || owed[0].ID != id {
			t.Errorf("owed %+v of a pod that died", owed)
		}
		must(t, e.RemovePod(t.Context(), id))
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
	})
}
