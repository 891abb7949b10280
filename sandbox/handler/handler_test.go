package handler

import (
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox/record"
)

// TestOf: pods of a handler that is not configured any more share one runtime, which no new pod gets.
func TestOf(t *testing.T) {
	type runtime struct{ oci.Runtime }
	made := 0
	h := Set{
		Settings: &Settings{DefaultHandler: "runc"},
		Runtimes: map[string]oci.Runtime{"runc": runtime{}, "a": runtime{}, "z": runtime{}},
		NewRetired: func(handler string) oci.Runtime {
			made++
			return runtime{}
		},
	}
	for range 2 {
		if _, err := h.Of(record.Pod{ResolvedHandler: "old"}); err != nil || made != 1 {
			t.Errorf("Of = %v with %d runtimes made, want one", err, made)
		}
	}
	if _, err := h.Find("old"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Find = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
	if got, want := h.Names(), []string{"runc", "a", "z"}; !slices.Equal(got, want) {
		t.Errorf("Names = %q, want %q", got, want)
	}
}
