package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestSkippedNames(t *testing.T) {
	re := regexp.MustCompile(regexpOf(skipNames("# a comment\n\na [x] spec  # why\nother.spec\n")))
	for name, want := range map[string]bool{
		"suite a [x] spec [Conformance]": true, "other.spec": true, "otherXspec": false, "a x spec": false, "why": false,
	} {
		if re.MatchString(name) != want {
			t.Errorf("%q is skipped = %v, want %v", name, !want, want)
		}
	}
}

func TestEverySkippedSpecHasAReason(t *testing.T) {
	for line := range strings.Lines(skips("gvisor") + "\n" + skips("vm")) {
		name, reason, _ := strings.Cut(line, "#")
		if strings.TrimSpace(name) != "" && len(strings.TrimSpace(reason)) < 20 {
			t.Errorf("line %q: reason has less than 20 characters", line)
		}
	}
	for _, handler := range []string{"runc", "gvisor-shim", "vm"} {
		if re := regexpOf(skipNames(skips(handler))); strings.HasPrefix(re, "|") || strings.Contains(re, "||") {
			t.Errorf("the skips of %s has an empty alternative, which would skip everything", handler)
		}
	}
	for _, handler := range []string{"gvisor-shim", "vm"} {
		if skips("runc") == skips(handler) {
			t.Errorf("skips are the same for runc and %s, want those of its file for the latter", handler)
		}
	}
}

func TestSummary(t *testing.T) {
	out := "noise\n\nRan 3 of 120 Specs in 1.0 seconds\nSUCCESS! -- 3 Passed | 0 Failed | 0 Pending | 117 Skipped\nPASS\n"
	want := "Ran 3 of 120 Specs in 1.0 seconds\nSUCCESS! -- 3 Passed | 0 Failed | 0 Pending | 117 Skipped\n"
	if got := summary(out); got != want {
		t.Errorf("summary = %q, want %q", got, want)
	}
	out = "noise\nSummarizing 1 Failure:\n  [FAIL] x\n\nRan 3 of 4 Specs\nFAIL! -- 2 Passed | 1 Failed\n"
	if got := summary(out); !strings.HasPrefix(got, "Summarizing 1 Failure") {
		t.Errorf("summary = %q, want it to start with the failures", got)
	}
}

func TestPasses(t *testing.T) {
	all := (&suite{rounds: 2, sample: 1}).passes("crun")
	var names []string
	for _, p := range all {
		names = append(names, p.name)
	}
	if got := strings.Join(names, " "); got != "crun-1 crun-1-websocket crun-2 crun-2-websocket" {
		t.Errorf("passes = %s, want two rounds of crun, each with and without WebSocket", got)
	}
	if some := (&suite{rounds: 1, sample: 1, focus: "Image"}).passes("runc"); len(some) != 1 || some[0].focus != "Image" {
		t.Errorf("passes with a focus = %+v, want one, with that focus", some)
	}
}

// TestLimits: emulated machines do not run more specs at a time than there are processors, and have longer.
func TestLimits(t *testing.T) {
	s := &suite{nodes: 4}
	if nodes, timeout := s.limits("vm", 2); nodes != 4 || timeout != 30*time.Minute {
		t.Errorf("limits of vm = %d, %s, want 4, 30m", nodes, timeout)
	}
	if nodes, timeout := s.limits("vm-qemu", 2); nodes != 2 || timeout != 2*time.Hour {
		t.Errorf("limits of vm-qemu = %d, %s, want 2, 2h", nodes, timeout)
	}
}
