package driver

import (
	"slices"
	"testing"

	"github.com/podd-project/podd/oci"
)

// TestFollowSizes: a terminal keeps its size when the client does not know its own.
func TestFollowSizes(t *testing.T) {
	sizes := make(chan oci.Size, 3)
	want := []oci.Size{{Width: 80, Height: 24}, {Width: 132, Height: 43}}
	sizes <- want[0]
	sizes <- oci.Size{}
	sizes <- want[1]
	close(sizes)
	var got []oci.Size
	FollowSizes(t.Context(), sizes, func(z oci.Size) { got = append(got, z) })
	if !slices.Equal(got, want) {
		t.Errorf("FollowSizes applied %v, want %v", got, want)
	}
}
