package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/podd-project/podd/sandbox/operation"
)

const (
	// recent is how long a failure counts as a problem.
	recent = 10 * time.Minute
	// stuckAfter is how long an operation may stay in one stage.
	stuckAfter = 10 * time.Second
	// littleSpace and fewInodes are the free part of a disk, in percent, below which the kubelet evicts pods by default:
	// imagefs.available and imagefs.inodesFree.
	littleSpace, fewInodes = 15, 5
)

// Problem is a fault of the node or a pod, and the command that shows more. The page, `podd status` and the bundle read
// the same list.
type Problem struct {
	// Kind is one of Kinds.
	Kind string `json:"kind"`
	// Text is one line.
	Text string `json:"text"`
	// Pod is the id of the pod and Name its namespace/name. Both are empty for a fault of the node.
	Pod  string `json:"pod,omitempty"`
	Name string `json:"name,omitempty"`
	// Next is a command, or the action itself.
	Next string `json:"next,omitempty"`
}

// Kinds are the kinds of problems: faults of the node, operations that are stuck, pods and containers that could not be
// made, containers that failed, were killed for memory, or have no monitor, images that cannot be pulled.
var Kinds = []string{"node", "stuck", "start", "exit", "oom", "monitor", "pull"}

// SetProblems fills s.Problems from the rest of s and from the last creations that failed, the newest first.
func (s *Status) SetProblems(failed []operation.Operation, now time.Time) {
	s.Problems = slices.Concat(s.problemsOfNode(), s.stuck(), s.problemsOfPods(now), failedStarts(failed, now),
		s.failedPulls(now))
}

func (s *Status) problemsOfNode() (found []Problem) {
	add := func(next, format string, args ...any) {
		found = append(found, Problem{Kind: "node", Text: fmt.Sprintf(format, args...), Next: next})
	}
	for _, c := range s.Conditions {
		// Handlers are configured by default: the node may do without one.
		if !c.Ready && !strings.HasPrefix(c.Type, "HandlerReady/") {
			add("podd config check --node", "%s is false: %s", c.Type, c.Message)
		}
	}
	if s.Configuration.Error != "" {
		add("podd config check", "the last reload was refused: %s", s.Configuration.Error)
	}
	if d := s.Disk; d.Free < d.Size/100*littleSpace {
		add("podd image df", "%d%% of the disk with images and containers are free", d.Free/(d.Size/100))
	}
	if d := s.Disk; d.InodesFree < d.Inodes/100*fewInodes {
		add("podd image df", "%d%% of the inodes of the disk with images and containers are free",
			d.InodesFree/(d.Inodes/100))
	}
	for _, t := range s.Troubles {
		since := ""
		if !t.Since.IsZero() {
			since = " since " + t.Since.UTC().Format(time.RFC3339)
		}
		add("podd check", "%s: %s %s%s: %s", t.Kind, t.What, cmp.Or(t.Path, t.ID), since, t.Error)
	}
	for _, name := range slices.Sorted(maps.Keys(s.NRI.Down)) {
		add("start the plugin", "NRI plugin %s is down: %s", name, s.NRI.Down[name])
	}
	for _, b := range s.Budgets {
		if b.InUse >= b.Limit {
			add("podd status -v", "budget %s is exhausted: %d %s in use", b.Name, b.InUse, b.Unit)
		}
	}
	return found
}

// waits are the stages that last as long as the pod's author wants.
var waits = []string{"grace period", "stop containers", "command", "save"}

// stuck are the operations that have been in one stage for long.
func (s *Status) stuck() (found []Problem) {
	for _, o := range s.Operations {
		if age := o.InStage(); age >= stuckAfter && !slices.Contains(waits, o.Stage()) {
			found = append(found, Problem{
				Kind: "stuck", Text: fmt.Sprintf("%s is stuck in %s for %v", o.Verb, o.Stage(), age.Round(time.Second)),
				Pod: o.Pod, Name: o.Name, Next: showPod(o.Pod),
			})
		}
	}
	return found
}

// problemsOfPods are containers that failed and were not replaced, and those whose output is lost.
func (s *Status) problemsOfPods(now time.Time) (found []Problem) {
	for _, p := range s.Pods {
		for _, c := range p.Containers {
			kind, text := "exit", ""
			switch {
			case c.Unmonitored:
				kind, text = "monitor", "its monitor died: output is no longer logged, recreate it"
			case c.failed() && now.Sub(c.Finished) < recent && !s.replaced(p, c):
				text = c.Exit()
				if c.Reason == "OOMKilled" {
					kind = "oom"
				}
				if c.Attempt > 0 {
					text += fmt.Sprintf(", %d starts", c.Attempt+1)
				}
			default:
				continue
			}
			found = append(found, Problem{
				Kind: kind, Text: fmt.Sprintf("container %s: %s", c.Name, text), Pod: p.ID, Name: p.Name, Next: showPod(p.ID),
			})
		}
	}
	return found
}

func (c Container) failed() bool { return c.State == "exited" && c.Reason != "Completed" }

// Exit returns the reason of an exit, with code and message.
func (c Container) Exit() string {
	text := fmt.Sprintf("%s, exit code %d", c.Reason, c.ExitCode)
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// replaced reports whether a later attempt of the container exists, also in a new sandbox of the pod.
func (s *Status) replaced(p Pod, c Container) bool {
	return slices.ContainsFunc(s.Pods, func(other Pod) bool {
		return other.Name == p.Name && slices.ContainsFunc(other.Containers, func(later Container) bool {
			return later.Name == c.Name && later.Created.After(c.Created)
		})
	})
}

// failedStarts are the pods and containers that could not be made lately.
func failedStarts(failed []operation.Operation, now time.Time) (found []Problem) {
	for _, o := range failed {
		if now.Sub(o.Began) > recent {
			continue
		}
		found = append(found, Problem{
			Kind: "start", Text: fmt.Sprintf("%s failed in %s: %s", o.Verb, o.FailedStage(), o.Error), Pod: o.Pod, Name: o.Name,
			Next: "podd history --failed --stages " + o.Name,
		})
	}
	return found
}

func (s *Status) failedPulls(now time.Time) (found []Problem) {
	for _, p := range s.FailedPulls {
		if now.Sub(p.Time) < recent {
			found = append(found, Problem{
				Kind: "pull", Text: fmt.Sprintf("image cannot be pulled: %s", p.Error), Next: "podd image explain " + p.Ref,
			})
		}
	}
	return found
}

func showPod(id string) string { return fmt.Sprintf("podd status %.13s", id) }
