package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/sandbox/nri"
)

func pluginStatus() nri.Status {
	return nri.Status{
		Plugins: []nri.PluginStatus{{Name: "10-a", Waiting: 2}, {Name: "10-a", Waiting: 1}},
		Down:    map[string]string{"20-b": "exit status 1"},
		Calls: map[string][]nri.Calls{"10-a": {
			{Verb: "CreateContainer", Total: 9, Refused: 2, Failed: 3, Time: 1500 * time.Millisecond},
		}},
	}
}

// TestPluginMetrics: two plugins of one name are one series; each outcome is a series.
func TestPluginMetrics(t *testing.T) {
	_, body := get(t, serve(t, seen()), Path)
	for _, want := range []string{
		"podd_nri_plugins 2", "podd_nri_plugins_down 1", `podd_nri_waiting_calls{plugin="10-a"} 3`,
		`podd_nri_calls_total{outcome="ok",plugin="10-a",verb="CreateContainer"} 4`,
		`podd_nri_calls_total{outcome="refused",plugin="10-a",verb="CreateContainer"} 2`,
		`podd_nri_calls_total{outcome="failed",plugin="10-a",verb="CreateContainer"} 3`,
		`podd_nri_call_seconds_total{plugin="10-a",verb="CreateContainer"} 1.5`,
		`podd_tracing_spans_total{outcome="sent"} 7`, `podd_tracing_spans_total{outcome="dropped"} 2`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("no line %s in\n%s", want, body)
		}
	}
}
