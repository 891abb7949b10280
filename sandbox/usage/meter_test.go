package usage

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
)

// fakeMeter reports the CPU times in turn; a negative one is an error.
type fakeMeter []time.Duration

func (m *fakeMeter) Usage(context.Context, string) (cgroups.Usage, error) {
	total := (*m)[0]
	*m = (*m)[1:]
	if total < 0 {
		return cgroups.Usage{}, errdefs.ErrUnavailable
	}
	return cgroups.FromSandbox(cgroups.SandboxStats{Total: uint64(total)}), nil
}

// TestRuntimeReaderTimeNeverDecreases: a decrease is dropped and later increases count, also after a failed call.
func TestRuntimeReaderTimeNeverDecreases(t *testing.T) {
	m := fakeMeter{10, 4, -1, 6, 12, 11}
	r := &runtimeReader{meter: &m, id: "c"}
	for i, want := range []time.Duration{10, 10, -1, 12, 18, 18} {
		got := time.Duration(-1)
		if u, err := r.Read(); err == nil {
			got = u.CPU.Total
		}
		if got != want {
			t.Errorf("call %d: CPU time = %d, want %d", i, got, want)
		}
	}
}
