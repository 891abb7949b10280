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
		{target{what: "a", measured: 1.15, limit: 1.15, unit: "x floor"}, "| a | <= 1.15 x floor | 1.15 | holds |"},
		{target{what: "b", measured: 1.38, limit: 1.15, unit: "x floor"}, "| b | <= 1.15 x floor | 1.38 | **falls short " +
			"by 20 %** |"},
		{target{what: "c", measured: 0.81, limit: 0.9, least: true, unit: "x floor"},
			"| c | >= 0.90 x floor | 0.81 | **falls short by 10 %** |"},
		{target{what: "d", measured: 2, limit: 0.9, least: true, unit: "x floor"}, "| d | >= 0.90 x floor | 2.00 | holds |"},
		{target{what: "e", measured: -0.1, limit: 0.4, unit: "MB"}, "| e | <= 0.40 MB | -0.10 | holds |"},
	} {
		var out strings.Builder
		writeTargets(&out, []target{c.target})
		if !strings.Contains(out.String(), "\n"+c.want+"\n") {
			t.Errorf("no line %s in\n%s", c.want, out.String())
		}
	}
}

// TestEveryTargetIsJudged plays a run in which everything takes 10 ms, but for one call that once took 40.
func TestEveryTargetIsJudged(t *testing.T) {
	b := &bench{}
	even := &samples{}
	for _, name := range []string{"ListContainerStats", "ListPodSandbox"} {
		even.add(name, 10*time.Millisecond)
	}
	var out strings.Builder
	writeTargets(&out, b.targets)
	if !strings.Contains(out.String(), "Not measured in this run: pod-up, pod-down, ExecSync true, churn") {
		t.Errorf("an empty run says\n%s", out.String())
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
		t.Errorf("not judged: %v", missing)
	}
	out.Reset()
	writeTargets(&out, b.targets)
	for _, want := range []string{
		"| pod-up, runc | <= 1.15 x floor | 1.00 | holds |", "| churn, runc | >= 0.90 x floor | 0.95 | holds |",
		"| p99 of every call, worst StopContainer, runc | <= 3.00 x p50 | 4.00 | **falls short by 33 %** |",
		"| ListContainerStats of 20, runc | <= 3.00 ms | 10.00 | **falls short by 233 %** |",
		"| ListContainers with 1000 containers, runc | <= 10.00 ms | 10.00 | holds |",
		"| PSS for each of 200 pods, runc | <= 0.40 MB | 0.40 | holds |", "| daemon idle after that, runc | <= 45.00 MB | " +
			"44.00 | holds |",
		"| restart with 100 pods, runc | <= 1.00 s | 0.90 | holds |", "| p99 of every call, worst ListContainerStats of " +
			"20, runc | <= 3.00 x p50 | 1.00 | holds |", "10 of 12 targets hold.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
}
