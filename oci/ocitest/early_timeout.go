package ocitest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/oci"
)

// EarlyTimeout tests commands whose time ends while the runtime starts them: none is left.
func EarlyTimeout(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r := h.New()
	run(t, h, r, "c", "sleep", "1000")
	for limit := 10 * time.Millisecond; limit < 400*time.Millisecond; limit += 10 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := r.ExecSync(ctx, oci.ExecRequest{ID: "c", Process: process(h, "sleep", "1004")})
		cancel()
		if err == nil {
			t.Errorf("ExecSync of a command that does not end, within %v = nil, want an error", limit)
		}
	}
	ps := oci.ExecRequest{ID: "c", Process: process(h, "ps", "-o", "args")}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		left, err := r.ExecSync(limit(t), ps)
		must(t, "exec ps", err)
		n := strings.Count(string(left.Stdout), "sleep 1004")
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d commands are left, want none", n)
		}
	}
}
