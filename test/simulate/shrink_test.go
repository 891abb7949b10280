package simulate

import (
	"strings"
	"testing"
)

// kinds are those of faults.
var kinds = []string{
	"kill", "stop", "power", "fail", "slow", "disk", "exit", "late", "twice", "stale", "reload",
}

// TestShrink looks for less with which a seed fails: kinds of faults, pods, and time.
func TestShrink(t *testing.T) {
	if !*shrunk {
		t.Skip("-shrink is not set")
	}
	var last []string
	fails := func() bool {
		_, broken := play(t, *first)
		if len(broken) > 0 {
			last = broken
		}
		return len(broken) > 0
	}
	if !fails() {
		t.Fatalf("seed %d does not fail", *first)
	}
	for _, kind := range kinds {
		before := *without
		if *without = strings.TrimPrefix(before+","+kind, ","); !fails() {
			*without = before
		}
	}
	for _, less := range []*int{pods, minutes} {
		for *less > 1 {
			before := *less
			if *less = before / 2; !fails() {
				*less = before
				break
			}
		}
	}
	t.Logf("go test ./test/simulate -run TestSimulate -seeds=1 -seed=%d -without=%s -pods=%d -minutes=%d -log -v\n%s",
		*first, *without, *pods, *minutes, strings.Join(last, "\n"))
}
