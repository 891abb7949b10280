package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// The targets. Times and ratios are medians within one run.
const (
	maxDownRatio  = 1.0  // of the floor: pod-down
	maxExecRatio  = 1.05 // of the runtime's own exec: ExecSync
	minChurnRatio = 1.0  // of the floor's pods per second
	maxProcessor  = 25.0 // ms for each pod of the churn, daemon and monitor
	maxStats      = 3.0  // ms, ListContainerStats of statsOf containers
	maxList       = 10.0 // ms, each list of listsOf containers, at the client
	maxIdle       = 40.0 // MB of PSS, after listsOf containers were removed
	maxPod        = 0.25 // MB of PSS for each pod above the workload
	maxRestart    = 1.0  // s until restartPods or manyPods are listed
	maxPresent    = 1.2  // pod-up with manyPods present, of that with none
	maxTail       = 3.0  // p99 of a call over its p50, one call after the other
	maxPullTail   = 2.0  // p99 of pod-up beside a pull over its p50
	maxPull       = 0.9  // of containerd's time for a pull
	maxPullTime   = 1.0  // of containerd's processor time for a pull
	statsOf       = 20   // containers
	listsOf       = 1000 // containers
	restartPods   = 100  // pods
	manyPods      = 1000 // pods
)

// maxUpRatio are the targets of pod-up by OCI runtime, as ratios to the floor.
var maxUpRatio = map[string]float64{"runc": 1.05, "crun": 0.9}

// The kinds of targets that have no other name.
const (
	churnTarget     = "churn"
	processorTarget = "daemon and monitor CPU for each pod"
	tailTarget      = "p99 of every call"
	pullTailTarget  = "p99 of " + podUpBesidePull
	pullTarget      = "pull beside containerd"
	pullTimeTarget  = "processor time of a pull beside containerd"
	lazyTarget      = "first line of an image that is pulled lazily" // "make bench-lazy" measures it
)

var (
	statsTarget       = fmt.Sprintf("ListContainerStats of %d", statsOf)
	podsTarget        = fmt.Sprintf("ListPodSandbox with %d containers", listsOf)
	containersTarget  = fmt.Sprintf("ListContainers with %d containers", listsOf)
	idleTarget        = fmt.Sprintf("daemon idle after %d containers", listsOf)
	memoryTarget      = fmt.Sprintf("PSS for each of %d pods", maxPods)
	manyMemoryTarget  = fmt.Sprintf("PSS for each of %d pods", manyPods)
	restartTarget     = fmt.Sprintf("restart with %d pods", restartPods)
	manyRestartTarget = fmt.Sprintf("restart with %d pods", manyPods)
	presentTarget     = fmt.Sprintf("%s with %d pods present", podUp, manyPods)
)

// kinds are all targets.
var kinds = []string{podUp, podDown, execOne, execLimited, churnTarget, processorTarget, statsTarget, podsTarget,
	containersTarget, idleTarget, memoryTarget, manyMemoryTarget, restartTarget, manyRestartTarget, presentTarget,
	tailTarget, pullTailTarget, pullTarget, pullTimeTarget, lazyTarget}

const (
	percent  = 100
	megabyte = float64(1 << 20)
)

// target is a limit and the value measured.
type target struct {
	// kind is one of kinds, where tells what was measured: a handler, a network.
	kind, where string
	// measured must be at most limit, or at least limit if least is set.
	measured, limit float64
	least           bool
	unit            string
}

// short returns by how much the target is missed, as a fraction of the limit; 0 or less if it is met.
func (t target) short() float64 {
	if t.least {
		return (t.limit - t.measured) / t.limit
	}
	return (t.measured - t.limit) / t.limit
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// printTargets prints the end of the report, with the targets that were not measured.
func (b *bench) printTargets() { writeTargets(os.Stdout, b.targets) }

func writeTargets(w io.Writer, targets []target) {
	fmt.Fprint(w, "### Targets\n\n| target | limit | measured | |\n|---|---:|---:|---|\n")
	failed := 0
	for _, t := range targets {
		verdict, sign := "met", "<="
		if t.least {
			sign = ">="
		}
		if s := t.short(); s > 0 {
			failed++
			verdict = fmt.Sprintf("**missed by %.0f %%**", s*percent)
		}
		fmt.Fprintf(w, "| %s, %s | %s %.2f %s | %.2f | %s |\n", t.kind, t.where, sign, t.limit, t.unit, t.measured,
			verdict)
	}
	fmt.Fprintf(w, "\n%d of %d targets are met.", len(targets)-failed, len(targets))
	if missing := unmeasured(targets); len(missing) > 0 {
		fmt.Fprintf(w, " Not measured in this run: %s.", strings.Join(missing, ", "))
	}
	fmt.Fprint(w, "\n\n")
}

// unmeasured returns the kinds of targets that were not measured.
func unmeasured(targets []target) (missing []string) {
	for _, kind := range kinds {
		if !slices.ContainsFunc(targets, func(t target) bool { return t.kind == kind }) {
			missing = append(missing, kind)
		}
	}
	return missing
}
