package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
)

func ms(n float64) operation.Duration { return operation.Duration(n * float64(time.Millisecond)) }

// marks returns a bar with n marks after a number of spaces.
func marks(after, n int) string {
	return strings.Repeat(" ", after) + strings.Repeat("#", n) + strings.Repeat(" ", waterfallWidth-after-n)
}

// TestWaterfall compares the output for a pod's start. Every bar begins where the one before it ends, within a
// column, and is as long as its stage; the shortest stage has a bar of one column.
func TestWaterfall(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := nodeStatus{admin.Status{
		Pods: []admin.Pod{{
			ID: "0123456789abcdef", Name: "default/web-0", State: "ready",
			Operations: []operation.Operation{{
				Verb: "RunPodSandbox", Began: began, Took: ms(40), Stages: []operation.Stage{
					{Name: "record", After: ms(0.1), Took: ms(1.9)}, {Name: "namespaces", After: ms(2), Took: ms(2)},
					{Name: "network", After: ms(4), Took: ms(35)}, {Name: "files", After: ms(39), Took: ms(0.02)},
					{Name: "infra container", After: ms(39.5)},
				},
			}},
			Containers: []admin.Container{{
				ID: "fedcba9876543210", Name: "main", State: "created",
				Operations: []operation.Operation{{
					Verb: "StartContainer", Began: began, Took: ms(1000), Error: "no such file",
					Stages: []operation.Stage{{Name: "start", Took: ms(500)}},
				}},
			}},
		}},
	}}
	var out strings.Builder
	if err := s.printPods(&out); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/waterfall.txt", out.String())
	for _, c := range []struct {
		stage operation.Stage
		whole operation.Duration
		want  string
	}{
		{operation.Stage{Took: ms(40)}, ms(40), marks(0, 40)},
		{operation.Stage{After: ms(10), Took: ms(10)}, ms(40), marks(10, 10)},
		{operation.Stage{After: ms(40)}, ms(40), marks(39, 1)},
		{operation.Stage{}, ms(40), marks(0, 1)},
		{operation.Stage{After: ms(30), Took: ms(30)}, ms(40), marks(30, 10)}, // ends after the operation
		{operation.Stage{}, 0, marks(0, 0)},
	} {
		if d := cmp.Diff(c.want, bar(c.stage, c.whole)); d != "" {
			t.Errorf("bar(%+v, %v), -want +got:\n%s", c.stage, c.whole, d)
		}
	}
}

// TestPluginsInStatus: an NRI plugin is printed with what it is doing and how many of its calls went wrong.
func TestPluginsInStatus(t *testing.T) {
	s := nodeStatus{admin.Status{NRI: nri.Status{
		Plugins: []nri.PluginStatus{{
			Name: "10-balloons", Pid: 77, OnFailure: "refuse", Waiting: 3, Call: "CreateContainer", Age: 1200 * time.Millisecond,
		}},
		Calls: map[string][]nri.Calls{"10-balloons": {
			{Verb: "CreateContainer", Total: 5, Failed: 1}, {Verb: "StopContainer", Total: 4, Refused: 2},
		}},
		Down: map[string]string{"20-gpu": "exit status 3"},
	}}}
	var out strings.Builder
	if err := s.print(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"NRI plugins: 1", "10-balloons", "pid 77", "on failure refuse", "9 calls, 2 refused, 1 failed", "3 waiting",
		"CreateContainer for 1.2s", "20-gpu", "down", "exit status 3",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestStatusBeginsWithProblems: the first line has the verdict, the next ones the problems.
func TestStatusBeginsWithProblems(t *testing.T) {
	s := nodeStatus{admin.Status{
		Version: "0.1.0", Host: "node-7", Started: time.Now().Add(-12*24*time.Hour - 3*time.Hour),
		Problems: []admin.Problem{
			{Text: "container app: Error,\nexit code 3", Pod: "p", Name: "shop/web", Next: "podd status p"},
		},
		Pods: []admin.Pod{
			{Name: "shop/web", State: "ready", Containers: []admin.Container{{State: "exited"}, {State: "running"}}},
			{Name: "shop/db", State: "ready"},
		},
	}}
	var out strings.Builder
	if err := s.print(&out, false); err != nil {
		t.Fatal(err)
	}
	want := "podd 0.1.0 on node-7, up 12d3h: 1 problem\n  shop/web  container app: Error,?exit code 3  (podd status p)\n\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("status begins with:\n%.300s\nwant:\n%s", out.String(), want)
	}
	if counts := "pods: 2 (2 ready), containers: 2 (1 exited, 1 running)\n"; !strings.Contains(out.String(), counts) {
		t.Errorf("no %q in:\n%s", counts, out.String())
	}
	if strings.Contains(out.String(), "shop/db") {
		t.Errorf("pods are listed without -v:\n%s", out.String())
	}
}
