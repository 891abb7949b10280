package shim

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

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

// TestFromGuest: an error of a guest keeps its kind, and at most errorLimit bytes of its text, which are printable.
func TestFromGuest(t *testing.T) {
	for _, text := range []string{"x", strings.Repeat("x", 100*errorLimit), "\x1b[2J", "\u009b2J", "a\x00b", "\xff"} {
		err := errgrpc.ToGRPC(fmt.Errorf("%s: %w", text, errdefs.ErrNotFound))
		got := fromGuest(err)
		if !errdefs.IsNotFound(got) || len(got.Error()) > errorLimit+100 {
			t.Errorf("fromGuest of %d bytes has %d bytes, is not found: %v, want not found of at most %d", len(text),
				len(got.Error()), errdefs.IsNotFound(got), errorLimit)
		}
		if strings.ContainsAny(got.Error(), "\x1b\x00\u009b") || !utf8.ValidString(got.Error()) {
			t.Errorf("fromGuest of %.20q = %.100q, want printable text", text, got.Error())
		}
		if cut := len(text) > errorLimit; strings.Contains(got.Error(), "...") != cut {
			t.Errorf("fromGuest of %.20q = %.100q, says that it is cut: %v, want %v", text, got.Error(), !cut, cut)
		}
		if n := strings.Count(got.Error(), errdefs.ErrNotFound.Error()); n != 1 {
			t.Errorf("fromGuest of %.20q = %.100q, names its kind %d times, want once", text, got.Error(), n)
		}
	}
}
