package shim

import (
	"fmt"
	"strings"
	"testing"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestCheckStats(t *testing.T) {
	for name, c := range map[string]struct {
		in *anypb.Any
		ok bool
	}{
		"metrics":         {&anypb.Any{TypeUrl: statsType, Value: make([]byte, 100)}, true},
		"of another type": {&anypb.Any{TypeUrl: "other"}, false},
		"too large":       {&anypb.Any{TypeUrl: statsType, Value: make([]byte, statsLimit+1)}, false},
		"none":            {nil, false},
	} {
		out, err := checkStats(&task.StatsResponse{Stats: c.in})
		if (err == nil) != c.ok || c.ok && len(out.GetStats().GetValue()) != len(c.in.GetValue()) {
			t.Errorf("%s: %v, %v, want accepted: %v", name, out, err, c.ok)
		}
	}
}

// TestFromGuest: an error of a guest keeps its kind, and at most errorLimit bytes of its text.
func TestFromGuest(t *testing.T) {
	for _, size := range []int{10, 100 * errorLimit} {
		err := errgrpc.ToGRPC(fmt.Errorf("%s: %w", strings.Repeat("x", size), errdefs.ErrNotFound))
		got := fromGuest(err)
		if !errdefs.IsNotFound(got) || len(got.Error()) > errorLimit+100 {
			t.Errorf("fromGuest of %d bytes has %d bytes, is not found: %v, want not found of at most %d", size,
				len(got.Error()), errdefs.IsNotFound(got), errorLimit)
		}
	}
}
