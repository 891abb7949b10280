package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRepeats: of a failure that repeats there is one line in ten minutes, with the number of the others.
func TestRepeats(t *testing.T) {
	var r repeats
	began := time.Unix(0, 0)
	for _, step := range []struct {
		failure string
		after   time.Duration
		held    int
		log     bool
	}{
		{"a", 0, 0, true}, {"a", time.Second, 0, false}, {"b", time.Second, 0, true}, {"a", 2 * time.Second, 0, false},
		{"a", repeatPeriod, 2, true}, {"a", repeatPeriod + time.Second, 0, false}, {"b", 3 * repeatPeriod, 0, true},
	} {
		if held, log := r.next(step.failure, began.Add(step.after)); held != step.held || log != step.log {
			t.Errorf("%s after %v: %d, %v, want %d, %v", step.failure, step.after, held, log, step.held, step.log)
		}
	}
}

// TestRepeatsAreBounded: no number of different failures makes podd remember more than maxRepeats.
func TestRepeatsAreBounded(t *testing.T) {
	var r repeats
	for i := range 3 * maxRepeats {
		if _, log := r.next(fmt.Sprint(i), time.Unix(0, 0)); !log {
			t.Fatalf("failure %d is not logged, want it logged, as it is the first of its kind", i)
		}
		if len(r.last) > maxRepeats {
			t.Fatalf("%d failures are remembered, want at most %d", len(r.last), maxRepeats)
		}
	}
}

// TestRepeatedFailureIsLoggedOnce: 50 timeouts of a probe, or refused resizes, are one warning.
func TestRepeatedFailureIsLoggedOnce(t *testing.T) {
	h := newHarness(t)
	for method, call := range map[string]func(){
		"ExecSync": func() {
			_, _ = h.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"true"}})
		},
		"UpdatePodSandboxResources": func() {
			_, _ = h.runtime.UpdatePodSandboxResources(t.Context(), &cri.UpdatePodSandboxResourcesRequest{PodSandboxId: podID})
		},
		"UpdateContainerResources": func() {
			_, _ = h.runtime.UpdateContainerResources(t.Context(), &cri.UpdateContainerResourcesRequest{
				ContainerId: runningID, Linux: &cri.LinuxContainerResources{CpuShares: 2},
			})
		},
	} {
		h.engine.fail = map[string]error{}
		for _, name := range []string{"ExecSync", "UpdatePod", "UpdateContainer"} {
			h.engine.fail[name] = fmt.Errorf("%w: no answer", errdefs.ErrFailedPrecondition)
		}
		for range 50 {
			call()
		}
		warnings, all := 0, 0
		for line := range strings.Lines(h.log.String()) {
			if strings.Contains(line, "method="+method) {
				all++
				warnings += strings.Count(line, "level=warning")
			}
		}
		if warnings != 1 || all != 50 {
			t.Errorf("%s: %d warnings in %d lines, want 1 in 50:\n%.2000s", method, warnings, all, h.log.String())
		}
	}
}
