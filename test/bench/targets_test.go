package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target target
		want   string
	}{
		{target{kind: "a", where: "runc", measured: 1.15, limit: 1.15, unit: "x floor"},
			"| a, runc | <= 1.15 x floor | 1.15 | met |"},
		{target{kind: "b", where: "runc", measured: 1.38, limit: 1.15, unit: "x floor"},
			"| b, runc | <= 1.15 x floor | 1.38 | **missed by 20 %** |"},
		{target{kind: "c", where: "runc", measured: 0.81, limit: 0.9, least: true, unit: "x floor"},
			"| c, runc | >= 0.90 x floor | 0.81 | **missed by 10 %** |"},
		{target{kind: "d", where: "runc", measured: 2, limit: 0.9, least: true, unit: "x floor"},
			"| d, runc | >= 0.90 x floor | 2.00 | met |"},
		{target{kind: "e", where: "runc", measured: -0.1, limit: 0.4, unit: "MB"},
			"| e, runc | <= 0.40 MB | -0.10 | met |"},
	} {
		var out strings.Builder
		writeTargets(&out, []target{c.target})
		if !strings.Contains(out.String(), "\n"+c.want+"\n") {
			t.Errorf("want line %s, got\n%s", c.want, out.String())
		}
	}
}

// TestEveryTargetIsJudged simulates a run in which everything takes 10 ms, except one call that once took 40 ms.
func TestEveryTargetIsJudged(t *testing.T) {
	b := &bench{plan: plan{handlers: []string{"runc"}}, network: plain,
		servers: []*server{{name: "podd"}, {name: "cri-o"}, {name: "containerd"}}}
	even := &samples{}
	for _, name := range []string{"ListContainerStats", "ListPodSandbox"} {
		even.add(name, 10*time.Millisecond)
	}
	var out strings.Builder
	writeTargets(&out, b.targets)
	if !strings.Contains(out.String(), "Not measured in this run: pod-up, pod-down, ExecSync true, ExecSync with") {
		t.Errorf("report of an empty run: want all targets as not measured, got\n%s", out.String())
	}
	s := tenMilliseconds()
	b.judgeLife("runc", s, s)
	b.judgeLife("crun", s, s)
	b.judgeExec("runc", s, s)
	b.judgeLists("runc", statsOf, even)
	b.judgeLists("runc", 200, s) // has no target
	b.judgeLists("runc", listsOf, s)
	b.judgeMemory(b.where("runc"), 200, usage{daemon: 50 << 20, others: 51 << 20},
		usage{daemon: 50 << 20, others: 1 << 20})
	b.judgeChurn(churnResult{where: b.where("runc"), pods: 10, rows: []churnRow{{name: "by hand", rate: 10},
		{name: "podd", rate: 9, times: processorTime{daemonRow: 200 * time.Millisecond, conmonRow: 40 * time.Millisecond,
			"runc": time.Hour}},
		{name: "containerd", rate: 1}}})
	b.judgeIdle("runc", listsOf, usage{daemon: 44 << 20, others: 1 << 30})
	b.judgeIdle("runc", 200, usage{daemon: 1 << 30}) // is no target
	b.judgeRestart(b.where("runc"), restartPods, 900*time.Millisecond)
	b.judgeRestart(b.where("runc"), 20, time.Hour) // is no target
	l := lives{byHand: s, byServer: []samples{*s}}
	b.judgePresent("runc", []presence{{lives: l}, {pods: manyPods, lives: l, restart: 2 * time.Second,
		used: usage{daemon: 100 << 20, others: 200 << 20}}}, usage{})
	b.judgeFiles([]samples{*s, *even, *s})
	if missing := unmeasured(b.targets); len(missing) != 1 || missing[0] != lazyTarget {
		t.Errorf("targets not judged: %v, want the one that is not measured, %s", missing, lazyTarget)
	}
	out.Reset()
	writeTargets(&out, b.targets)
	for _, want := range []string{
		"| pod-up, runc, plain | <= 1.05 x floor | 1.00 | met |",
		"| pod-up, crun, plain | <= 0.90 x floor | 1.00 | **missed by 11 %** |",
		"| pod-down, crun, plain | <= 1.00 x floor | 1.00 | met |",
		"| ExecSync true, runc, plain | <= 1.05 x floor | 1.00 | met |",
		"| ExecSync with cpu 100m, runc | <= 1.05 x floor | 1.00 | met |",
		"| churn, runc, plain | >= 1.00 x floor | 0.90 | **missed by 10 %** |",
		"| daemon and monitor CPU for each pod, runc, plain | <= 25.00 ms | 24.00 | met |",
		"| p99 of every call, worst StopContainer, runc, plain | <= 3.00 x p50 | 4.00 | **missed by 33 %** |",
		"| ListContainerStats of 20, runc | <= 3.00 ms | 10.00 | **missed by 233 %** |",
		"| ListContainers with 1000 containers, runc | <= 10.00 ms | 10.00 | met |",
		"| PSS for each of 200 pods, runc, plain | <= 0.25 MB | 0.25 | met |",
		"| PSS for each of 1000 pods, runc, plain | <= 0.25 MB | 0.30 | **missed by 20 %** |",
		"| daemon idle after 1000 containers, runc | <= 40.00 MB | 44.00 | **missed by 10 %** |",
		"| restart with 100 pods, runc, plain | <= 1.00 s | 0.90 | met |",
		"| restart with 1000 pods, runc, plain | <= 1.00 s | 2.00 | **missed by 100 %** |",
		"| pod-up with 1000 pods present, runc, plain | <= 1.20 x that with none | 1.00 | met |",
		"| p99 of pod-up beside a pull, runc, plain | <= 2.00 x p50 | 1.00 | met |",
		"| pull beside containerd, gzip, all new | <= 0.90 x containerd | 1.00 | **missed by 11 %** |",
		"| processor time of a pull beside containerd, zstd, all new | <= 1.00 x containerd | 1.00 | met |",
		"| p99 of every call, worst ListContainerStats of 20, runc | <= 3.00 x p50 | 1.00 | met |",
		"16 of 26 targets are met. Not measured in this run: first line of an image that is pulled lazily.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %s, got\n%s", want, out.String())
		}
	}
}

// tenMilliseconds returns samples of everything that has a target. One call once took 40 ms, a stage a second.
func tenMilliseconds() *samples {
	names := []string{podUp, podDown, execOne, execLimited, "StopContainer", "StopContainer: kill", "ListContainerStats",
		"ListPodSandbox", "ListContainers", podUpBesidePull}
	for _, how := range fileCompressions {
		names = append(names, string(how)+allNew, string(how)+allNew+processorSuffix)
	}
	s := &samples{}
	for _, name := range names {
		for i := range 100 {
			took := 10 * time.Millisecond
			if i == 50 && name == "StopContainer" {
				took = 40 * time.Millisecond
			}
			if i == 50 && strings.Contains(name, ": ") {
				took = time.Second
			}
			s.add(name, took)
		}
	}
	return s
}

// TestTargetsNeedTheirMeasurement: what was not measured is not judged, and so is named at the end of the table.
func TestTargetsNeedTheirMeasurement(t *testing.T) {
	b := &bench{plan: plan{handlers: []string{"runc"}}, servers: []*server{{name: "podd"}, {name: "cri-o"}}}
	s := tenMilliseconds()
	b.judgeFiles([]samples{*s, *s}) // without containerd
	b.judgeChurn(churnResult{pods: 10, rows: []churnRow{{name: "podd", rate: 1, problem: errors.New("no taskstats")}}})
	b.judgePresent("runc", []presence{{pods: 200, lives: lives{byServer: []samples{*s}}}, {pods: manyPods,
		lives: lives{byServer: []samples{*s}}}}, usage{})
	missing := unmeasured(b.targets)
	for _, kind := range []string{pullTarget, pullTimeTarget, processorTarget, presentTarget} {
		if !slices.Contains(missing, kind) {
			t.Errorf("%s is judged, want it as not measured", kind)
		}
	}
	for _, kind := range []string{churnTarget, manyMemoryTarget, manyRestartTarget, pullTailTarget} {
		if slices.Contains(missing, kind) {
			t.Errorf("%s is not judged, want it judged", kind)
		}
	}
}
