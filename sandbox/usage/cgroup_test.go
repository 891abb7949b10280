package usage

import (
	"testing"
	"time"

	"github.com/podd-project/podd/oci/cgroups"
)

func TestNanoCores(t *testing.T) {
	start := time.Unix(1e9, 0)
	sample := func(after, used time.Duration) cgroups.Usage {
		return cgroups.Usage{At: start.Add(after), CPU: &cgroups.CPU{Total: used}}
	}
	for name, tt := range map[string]struct {
		created time.Duration
		samples []cgroups.Usage
		want    []int64 // -1 for none
	}{
		"new":             {0, []cgroups.Usage{sample(time.Second, 500*time.Millisecond)}, []int64{5e8}},
		"old, one sample": {-time.Hour, []cgroups.Usage{sample(0, time.Minute)}, []int64{-1}},
		"old, two": {
			-time.Hour,
			[]cgroups.Usage{sample(0, time.Minute), sample(2*time.Second, time.Minute+time.Second)},
			[]int64{-1, 5e8},
		},
		"current, not average": {0, []cgroups.Usage{
			sample(10*time.Second, 10*time.Second), sample(20*time.Second, 10*time.Second),
			sample(30*time.Second, 30*time.Second),
		}, []int64{1e9, 0, 2e9}},
		"too soon": {0, []cgroups.Usage{
			sample(time.Second, time.Second), sample(1010*time.Millisecond, time.Second),
			sample(2*time.Second, 3*time.Second),
		}, []int64{1e9, 1e9, 2e9}},
		"clock goes back": {0, []cgroups.Usage{
			sample(10*time.Second, time.Second), sample(9*time.Second, 2*time.Second),
		}, []int64{1e8, 1e8}},
		"counter goes back": {0, []cgroups.Usage{
			sample(time.Second, time.Second), sample(2*time.Second, 0),
		}, []int64{1e9, 0}},
		"no CPU accounting":  {0, []cgroups.Usage{{At: start}}, []int64{-1}},
		"born in the future": {time.Hour, []cgroups.Usage{sample(0, time.Second)}, []int64{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			g := cgroupGauge{interval: 10 * time.Second, created: start.Add(tt.created)}
			for i, u := range tt.samples {
				got := int64(-1)
				if rate := g.nanoCores(u); rate != nil {
					got = int64(*rate)
				}
				if got != tt.want[i] {
					t.Errorf("sample %d: rate = %d, want %d", i, got, tt.want[i])
				}
			}
		})
	}
}
