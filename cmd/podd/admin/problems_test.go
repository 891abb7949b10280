package admin

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/operation"
)

// TestProblems: each fault is one problem with its pod and the next command; a fault that is over is not listed.
func TestProblems(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	pod := func(containers ...Container) []Pod {
		return []Pod{{
			ID: "0123456789abcdef", Name: "shop/web", State: "ready", Created: ago(time.Hour), Containers: containers,
		}}
	}
	exited := func(reason string, code int32, d time.Duration, attempt uint32) Container {
		return Container{
			Name: "app", State: "exited", Reason: reason, ExitCode: code, Finished: ago(d), Attempt: attempt, Created: ago(d),
		}
	}
	failed := func(verb, name string, d time.Duration) operation.Operation {
		return operation.Operation{
			Verb: verb, Name: name, Pod: "0123456789abcdef", Began: ago(d), Error: "no address", FailedIn: "network",
			Stages: []operation.Stage{{Name: "undo network"}}, Outcome: operation.OutcomeError, Done: true,
		}
	}
	for _, tt := range []struct {
		name   string
		status Status
		failed []operation.Operation
		want   string // "name: text (next)"; empty: no problem
	}{
		{name: "node at rest", status: Status{Conditions: []Condition{{Type: "RuntimeReady", Ready: true}}}},
		{name: "crash loop", status: Status{Pods: pod(exited("Error", 3, time.Minute, 7))},
			want: "shop/web: container app: Error, exit code 3, 8 starts (podd status 0123456789abc)"},
		{name: "crash before the last restart",
			status: Status{Pods: pod(exited("Error", 3, time.Minute, 7),
				Container{Name: "app", State: "running", Attempt: 8, Created: now})}},
		{name: "crash in the last sandbox", status: Status{Pods: append(pod(exited("Error", 3, time.Minute, 7)), Pod{
			Name: "shop/web", Containers: []Container{{Name: "app", State: "running", Created: now}}})}},
		{name: "killed for memory", status: Status{Pods: pod(exited("OOMKilled", 137, time.Second, 0))},
			want: "shop/web: container app: OOMKilled, exit code 137 (podd status 0123456789abc)"},
		{name: "crash an hour ago", status: Status{Pods: pod(exited("Error", 3, time.Hour, 0))}},
		{name: "done", status: Status{Pods: pod(exited("Completed", 0, time.Second, 0))}},
		{name: "no monitor", status: Status{Pods: pod(Container{Name: "app", State: "running", Unmonitored: true})},
			want: "shop/web: container app: its monitor died: output is no longer logged, recreate it " +
				"(podd status 0123456789abc)"},
		{name: "pod cannot be made", failed: []operation.Operation{
			failed(operation.RunPod, "shop/web", time.Minute)},
			want: "shop/web: RunPodSandbox failed in network: no address (podd history --failed --stages shop/web)"},
		{name: "pod could not be made an hour ago",
			failed: []operation.Operation{failed(operation.RunPod, "shop/web", 2*time.Hour)}},
		{name: "container cannot be made", status: Status{Pods: pod()},
			failed: []operation.Operation{failed(operation.CreateContainer, "shop/web/app", time.Minute)},
			want: "shop/web/app: CreateContainer failed in network: no address " +
				"(podd history --failed --stages shop/web/app)"},
		{name: "image", status: Status{FailedPulls: []image.PullFailure{
			{Ref: "a:1", Error: "pull a:1: not found", Time: ago(time.Minute)}, {Ref: "old", Error: "x", Time: ago(time.Hour)}}},
			want: "node: image cannot be pulled: pull a:1: not found (podd image explain a:1)"},
		{name: "stuck", status: Status{Operations: []operation.Operation{
			{Verb: operation.RunPod, Name: "shop/web", Pod: "0123456789abcdef",
				Stages: []operation.Stage{{Name: "network", Took: operation.Duration(time.Minute)}}},
			{Verb: operation.StopContainer, Name: "shop/old",
				Stages: []operation.Stage{{Name: "grace period", Took: operation.Duration(time.Minute)}}},
			{Verb: operation.RunPod, Name: "shop/new", Took: operation.Duration(time.Second)}}},
			want: "shop/web: RunPodSandbox is stuck in network for 1m0s (podd status 0123456789abc)"},
		{name: "network", status: Status{Conditions: []Condition{{Type: "NetworkReady", Message: "no file"},
			{Type: "HandlerReady/kata", Message: "not installed"}}},
			want: "node: NetworkReady is false: no file (podd config check --node)"},
		{name: "disk", status: Status{Disk: Space{Free: 149 << 20, Size: 1000 << 20, InodesFree: 40, Inodes: 1000}},
			want: "node: 14% of the disk with images and containers are free (podd image df)\n" +
				"node: 4% of the inodes of the disk with images and containers are free (podd image df)"},
		{name: "disk with space", status: Status{Disk: Space{Free: 150 << 20, Size: 1000 << 20}}}, // btrfs has no inodes
		{name: "reload", status: Status{Configuration: Configuration{Error: "line 3"}},
			want: "node: the last reload was refused: line 3 (podd config check)"},
		{name: "cleanup", status: Status{Troubles: []sandbox.Trouble{
			{Kind: "cleanup", What: "cgroup", ID: "ab", Error: "busy"}}},
			want: "node: cleanup: cgroup ab: busy (podd check)"},
		{name: "plugin", status: Status{NRI: nri.Status{Down: map[string]string{"10-x": "exit status 3"}}},
			want: "node: NRI plugin 10-x is down: exit status 3 (start the plugin)"},
		{name: "budget", status: Status{Budgets: []budget.Usage{{Name: "output", Unit: "bytes", Limit: 5, InUse: 5},
			{Name: "other", Limit: 5, InUse: 4, Refused: 9}}},
			want: "node: budget output is exhausted: 5 bytes in use (podd status -v)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.status.SetProblems(tt.failed, now)
			var got []string
			for _, p := range tt.status.Problems {
				if !slices.Contains(Kinds, p.Kind) {
					t.Errorf("kind = %q, want one of %q", p.Kind, Kinds)
				}
				if strings.Contains(p.Text, "OOMKilled") != (p.Kind == "oom") {
					t.Errorf("%q has the kind %q", p.Text, p.Kind)
				}
				name := p.Name
				if name == "" {
					name = "node"
				}
				got = append(got, name+": "+p.Text+" ("+p.Next+")")
			}
			if all := strings.Join(got, "\n"); all != tt.want {
				t.Errorf("problems:\n%s\nwant:\n%s", all, tt.want)
			}
		})
	}
}
