package main

import (
	"fmt"
	"strings"
	"time"
)

// judge adds a target with the value measured.
func (b *bench) judge(t target) { b.targets = append(b.targets, t) }

// judgeRatio judges the ratio of two medians of the same name; not if one of them was not measured.
func (b *bench) judgeRatio(t target, s, floor *samples, name string) {
	took, of := s.quantile(name, 0.5), floor.quantile(name, 0.5)
	if took == 0 || of == 0 {
		return
	}
	t.measured = float64(took) / float64(of)
	b.judge(t)
}

// byRuntime returns the limit for an OCI runtime: runc's for one that has no limit of its own.
func byRuntime(limits map[string]float64, handler string) float64 {
	if limit, ok := limits[handler]; ok {
		return limit
	}
	return limits["runc"]
}

// judgeLife compares the life of a pod with the floor, and the p99 of each call with its p50.
func (b *bench) judgeLife(handler string, byHand, podd *samples) {
	for _, l := range []struct {
		name  string
		limit float64
	}{{podUp, byRuntime(maxUpRatio, handler)}, {podDown, maxDownRatio}, {execOne, maxExecRatio}} {
		b.judgeRatio(target{kind: l.name, where: b.where(handler), limit: l.limit, unit: "x floor"}, podd, byHand, l.name)
	}
	b.judgeTails(", "+b.where(handler), podd)
}

// judgeExec compares commands in containers with a CPU limit.
func (b *bench) judgeExec(handler string, byHand, podd *samples) {
	b.judgeRatio(target{kind: execLimited, where: handler, limit: maxExecRatio, unit: "x floor"}, podd, byHand,
		execLimited)
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
		b.judge(target{kind: tailTarget, where: "worst " + worst + where, measured: ratio, limit: maxTail, unit: "x p50"})
	}
}

// judgeLists judges the lists of those numbers of containers that have a target.
func (b *bench) judgeLists(handler string, containers int, took *samples) {
	switch containers {
	case statsOf:
		b.judge(target{kind: statsTarget, where: handler, measured: milliseconds(took.quantile("ListContainerStats", 0.5)),
			limit: maxStats, unit: "ms"})
		b.judgeTails(fmt.Sprintf(" of %d, %s", statsOf, handler), took)
	case listsOf:
		for _, l := range []struct{ kind, call string }{{podsTarget, "ListPodSandbox"}, {containersTarget,
			"ListContainers"}} {
			b.judge(target{kind: l.kind, where: handler, measured: milliseconds(took.quantile(l.call, 0.5)), limit: maxList,
				unit: "ms"})
		}
	}
}

// judgeMemory judges the memory of pods with one container each.
func (b *bench) judgeMemory(where string, pods int, used, idle usage) {
	b.judge(target{kind: fmt.Sprintf("PSS for each of %d pods", pods), where: where,
		measured: grown(used.daemon+used.others, idle.daemon+idle.others, pods), limit: maxPod, unit: "MB"})
}

// judgeIdle judges the daemon's memory when that number of containers was removed.
func (b *bench) judgeIdle(handler string, containers int, u usage) {
	if containers == listsOf {
		b.judge(target{kind: idleTarget, where: handler, measured: float64(u.daemon) / megabyte, limit: maxIdle, unit: "MB"})
	}
}

// judgeChurn compares podd with the floor, which is the first row, and judges its processor time.
func (b *bench) judgeChurn(r churnResult) {
	for _, row := range r.rows {
		if row.name != "podd" {
			continue
		}
		b.judge(target{kind: churnTarget, where: r.where, measured: row.rate / r.rows[0].rate, limit: minChurnRatio,
			least: true, unit: "x floor"})
		if row.problem == nil {
			b.judge(target{kind: processorTarget, where: r.where, limit: maxProcessor, unit: "ms",
				measured: r.processorByPod(row, daemonRow, conmonRow, childRow)})
		}
	}
}

func (b *bench) judgeRestart(where string, pods int, took time.Duration) {
	if pods == restartPods || pods == manyPods {
		b.judge(target{kind: fmt.Sprintf("restart with %d pods", pods), where: where, measured: took.Seconds(),
			limit: maxRestart, unit: "s"})
	}
}

// judgePresent judges what was measured with manyPods present.
func (b *bench) judgePresent(handler string, all []presence, idle usage) {
	for _, p := range all {
		if p.pods != manyPods {
			continue
		}
		b.judgeMemory(b.where(handler), p.pods, p.used, idle)
		b.judgeRestart(b.where(handler), p.pods, p.restart)
		if all[0].pods == 0 {
			b.judgeRatio(target{kind: presentTarget, where: b.where(handler), limit: maxPresent, unit: "x that with none"},
				&p.lives.byServer[0], &all[0].lives.byServer[0], podUp)
		}
	}
}

// judgeFiles judges podd's pods beside a pull, and its pulls of an image that is all new beside those of containerd.
func (b *bench) judgeFiles(byServer []samples) {
	podd := &byServer[0]
	if p50 := podd.quantile(podUpBesidePull, 0.5); p50 > 0 {
		b.judge(target{kind: pullTailTarget, where: b.where(b.handlers[0]), limit: maxPullTail, unit: "x p50",
			measured: float64(podd.quantile(podUpBesidePull, 0.99)) / float64(p50)})
	}
	for i, s := range b.servers {
		if s.name != "containerd" {
			continue
		}
		for _, how := range fileCompressions {
			name := string(how) + allNew
			b.judgeRatio(target{kind: pullTarget, where: name, limit: maxPull, unit: "x containerd"}, podd, &byServer[i], name)
			b.judgeRatio(target{kind: pullTimeTarget, where: name, limit: maxPullTime, unit: "x containerd"}, podd,
				&byServer[i], name+processorSuffix)
		}
	}
}
