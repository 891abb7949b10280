package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// The targets. Times and ratios are medians within one run.
const (
	maxLifeRatio  = 1.15 // of the floor: pod-up, pod-down, and ExecSync of the runtime's own exec
	minChurnRatio = 0.9  // of the floor's pods per second
	maxStats      = 3.0  // ms, ListContainerStats of statsOf containers
	maxList       = 10.0 // ms, each list of listsOf containers, at the client
	maxIdle       = 45.0 // MB of PSS
	maxPod        = 0.4  // MB of PSS for each pod above the workload
	maxRestart    = 1.0  // s until restartPods are listed
	maxTail       = 3.0  // p99 of a call over its p50, one call after the other
	statsOf       = 20   // containers
	listsOf       = 1000 // containers
	restartPods   = 100  // pods
)

const (
	percent  = 100
	megabyte = float64(1 << 20)
)

// target is a limit and the value measured.
type target struct {
	what string
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

// judge adds a target with the value measured.
func (b *bench) judge(t target) { b.targets = append(b.targets, t) }

// judgeLife compares the life of a pod with the floor, and the p99 of each call with its p50.
func (b *bench) judgeLife(handler string, byHand, podd *samples) {
	for _, name := range []string{podUp, podDown, execOne} {
		if of := byHand.quantile(name, 0.5); of > 0 {
			b.judge(target{what: name + ", " + handler, measured: float64(podd.quantile(name, 0.5)) / float64(of),
				limit: maxLifeRatio, unit: "x floor"})
		}
	}
	b.judgeTails(", "+handler, podd)
}

// judgeTails adds a target for the call with the largest ratio of p99 to p50.
func (b *bench) judgeTails(where string, s *samples) {
	worst, ratio := "", 0.0
	for _, name := range s.names {
		p50 := s.quantile(name, 0.5)
		if strings.Contains(name, ": ") || p50 == 0 { // a stage, not a call
			continue
		}
		if r := float64(s.quantile(name, 0.99)) / float64(p50); r > ratio {
			worst, ratio = name, r
		}
	}
	if worst != "" {
		b.judge(target{what: "p99 of every call, worst " + worst + where, measured: ratio, limit: maxTail, unit: "x p50"})
	}
}

// judgeLists judges the lists of those numbers of containers that have a target.
func (b *bench) judgeLists(handler string, containers int, took *samples) {
	switch containers {
	case statsOf:
		b.judge(target{what: fmt.Sprintf("ListContainerStats of %d, %s", statsOf, handler),
			measured: milliseconds(took.quantile("ListContainerStats", 0.5)), limit: maxStats, unit: "ms"})
		b.judgeTails(fmt.Sprintf(" of %d, %s", statsOf, handler), took)
	case listsOf:
		for _, list := range []string{"ListPodSandbox", "ListContainers"} {
			b.judge(target{what: fmt.Sprintf("%s with %d containers, %s", list, listsOf, handler),
				measured: milliseconds(took.quantile(list, 0.5)), limit: maxList, unit: "ms"})
		}
	}
}

// judgeMemory judges the memory of pods with one container each.
func (b *bench) judgeMemory(handler string, pods int, used, idle usage) {
	grown := float64(used.daemon) - float64(idle.daemon) + float64(used.others) - float64(idle.others)
	b.judge(target{what: fmt.Sprintf("PSS for each of %d pods, %s", pods, handler),
		measured: grown / float64(pods) / megabyte, limit: maxPod, unit: "MB"})
}

// judgeIdle judges the daemon's memory before the first pods of the sizes.
func (b *bench) judgeIdle(handler string, u usage) {
	b.judge(target{what: "daemon idle after that, " + handler, measured: float64(u.daemon) / megabyte, limit: maxIdle,
		unit: "MB"})
}

// judgeChurn compares podd with the floor, which is the first row.
func (b *bench) judgeChurn(handler string, r churnResult) {
	for _, row := range r.rows {
		if row.name == "podd" {
			b.judge(target{what: "churn, " + handler, measured: row.rate / r.rows[0].rate, limit: minChurnRatio, least: true,
				unit: "x floor"})
		}
	}
}

func (b *bench) judgeRestart(handler string, pods int, took time.Duration) {
	if pods == restartPods {
		b.judge(target{what: fmt.Sprintf("restart with %d pods, %s", pods, handler), measured: took.Seconds(),
			limit: maxRestart, unit: "s"})
	}
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
		fmt.Fprintf(w, "| %s | %s %.2f %s | %.2f | %s |\n", t.what, sign, t.limit, t.unit, t.measured, verdict)
	}
	fmt.Fprintf(w, "\n%d of %d targets are met.", len(targets)-failed, len(targets))
	if missing := unmeasured(targets); len(missing) > 0 {
		fmt.Fprintf(w, " Not measured in this run: %s.", strings.Join(missing, ", "))
	}
	fmt.Fprint(w, "\n\n")
}

// unmeasured returns the kinds of targets that were not measured, as prefixes of their names.
func unmeasured(targets []target) (missing []string) {
	for _, kind := range []string{podUp, podDown, execOne, "churn", "ListContainerStats", "ListPodSandbox",
		"ListContainers with", "daemon idle", "PSS for each", "restart", "p99"} {
		found := false
		for _, t := range targets {
			found = found || strings.HasPrefix(t.what, kind)
		}
		if !found {
			missing = append(missing, kind)
		}
	}
	return missing
}
