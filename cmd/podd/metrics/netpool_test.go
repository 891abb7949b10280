package metrics

import (
	"strings"
	"testing"
)

func TestNetworkPoolMetrics(t *testing.T) {
	_, body := get(t, serve(t, seen()), Path)
	for _, want := range []string{
		"podd_network_pool_size 4", "podd_network_pool_ready 3",
		"podd_network_pool_taken_total 20", "podd_network_pool_missed_total 5",
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no line %s in\n%s", want, body)
		}
	}
}
