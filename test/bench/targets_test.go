package main

import (
	"strings"
	"testing"
	"time"
)

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		target target
		want   string
	}{
		{target{what: "a", measured: 1.15, limit: 1.15, unit: "x floor"}, "| a | <= 1.15 x floor | 1.15 | met |"},
		{target{what: "b", measured: 1.38, limit: 1.15, unit: "x floor"}, "| b | <= 1.15 x floor | 1.38 | **missed " +
			"by 20 %** |"},
		{target{what: "c", measured: 0.81, limit: 0.9, least: true, unit: "x floor"},
			"| c | >= 0.90 x floor | 0.81 | **missed by 10 %** |"},
		{target{what: "d", measured: 2, limit: 0.9, least: true, unit: "x floor"}, "| d | >= 0.90 x floor | 2.00 | met |"},
		{target{what: "e", measured: -0.1, limit: 0.4, unit: "MB"}, "| e | <= 0.40 MB | -0.10 | met |"},
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
	b := &bench{}
	even := &samples{}
	for _, name := range []string{"ListContainerStats", "ListPodSandbox"} {
		even.add(name, 10*time.Millisecond)
	}
	var out strings.Builder
	writeTargets(&out, b.targets)
	if !strings.Contains(out.String(), "Not measured in this run: pod-up, pod-down, ExecSync true, churn") {
		t.Errorf("report of an empty run: want all targets as not measured, got\n%s", out.String())
	}
	s := &samples{}
	for _, name := range []string{podUp, podDown, execOne, "StopContainer", "StopContainer: kill", "ListContainerStats",
		"ListPodSandbox", "ListContainers"} {
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
	b.judgeLife("runc", s, s)
	b.judgeLists("runc", statsOf, even)
	b.judgeLists("runc", 200, s) // has no target
	b.judgeLists("runc", listsOf, s)
	b.judgeMemory("runc", 200, usage{daemon: 50 << 20, others: 81 << 20}, usage{daemon: 50 << 20, others: 1 << 20})
	b.judgeChurn("runc", churnResult{rows: []churnRow{{name: "by hand", rate: 10}, {name: "podd", rate: 9.5},
		{name: "containerd", rate: 1}}})
	b.judgeIdle("runc", usage{daemon: 44 << 20, others: 1 << 30})
	b.judgeRestart("runc", restartPods, 900*time.Millisecond)
	b.judgeRestart("runc", 20, time.Hour) // is no target
	if missing := unmeasured(b.targets); len(missing) > 0 {
		t.Errorf("targets not judged: %v, want none", missing)
	}
	out.Reset()
	writeTargets(&out, b.targets)
	for _, want := range []string{
		"| pod-up, runc | <= 1.15 x floor | 1.00 | met |", "| churn, runc | >= 0.90 x floor | 0.95 | met |",
		"| p99 of every call, worst StopContainer, runc | <= 3.00 x p50 | 4.00 | **missed by 33 %** |",
		"| ListContainerStats of 20, runc | <= 3.00 ms | 10.00 | **missed by 233 %** |",
		"| ListContainers with 1000 containers, runc | <= 10.00 ms | 10.00 | met |",
		"| PSS for each of 200 pods, runc | <= 0.40 MB | 0.40 | met |", "| daemon idle after that, runc | <= 45.00 MB | " +
			"44.00 | met |",
		"| restart with 100 pods, runc | <= 1.00 s | 0.90 | met |", "| p99 of every call, worst ListContainerStats of " +
			"20, runc | <= 3.00 x p50 | 1.00 | met |", "10 of 12 targets are met.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want %s, got\n%s", want, out.String())
		}
	}
}
