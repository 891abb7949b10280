package convert

import (
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// TestBandwidth: a rate is a quantity of Kubernetes between 1k and 1P, and one that is costly to compute is refused.
func TestBandwidth(t *testing.T) {
	for text, want := range map[string]uint64{
		"1k": 1000, "10M": 10_000_000, "1Mi": 1 << 20, "1P": 1e15, "1e6": 1_000_000, "1500000m": 1500, "12e-1M": 0,
		"999": 0, "1.1P": 0, "fast": 0, "": 0, "-1M": 0, "1Ei": 0, "1e99": 0, "1e-99": 0, "1e100": 0,
		"1e-999999999": 0, "1E999999999": 0, strings.Repeat("0", 1_000_000) + "1M": 0,
	} {
		begin := time.Now()
		got, err := Bandwidth(map[string]string{egressAnnotation: text})
		if took := time.Since(begin); took > 10*time.Second { // without the limits it takes minutes
			t.Errorf("Bandwidth(%.20q) took %v", text, took)
		}
		switch {
		case want == 0 && !errdefs.IsInvalidArgument(err):
			t.Errorf("Bandwidth(%.20q) = %+v, %v, want ErrInvalidArgument", text, got, err)
		case want > 0 && (err != nil || got.Egress != want || got.Ingress != 0):
			t.Errorf("Bandwidth(%.20q) = %+v, %v, want egress %d only", text, got, err, want)
		}
	}
}
