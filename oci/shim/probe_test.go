package shim

import (
	"testing"

	"github.com/sirupsen/logrus"
)

// TestHostNetwork: only gVisor's option of that name and value opens the node's network to pods. A configuration
// file is not read.
func TestHostNetwork(t *testing.T) {
	flags := func(network string) map[string]any {
		return map[string]any{"runsc_config": map[string]any{"network": network}}
	}
	for name, tt := range map[string]struct {
		cfg  Config
		want bool
	}{
		"gVisor":             {Config{}, false},
		"its own stack":      {Config{Options: flags("sandbox")}, false},
		"the host's":         {Config{Options: flags("host")}, true},
		"configuration file": {Config{Options: flags("host"), ConfigPath: "/etc/runsc.toml"}, false},
		"another shim's":     {Config{Options: map[string]any{"network": "host"}}, false},
	} {
		tt.cfg.Log = logrus.New()
		if f := New(tt.cfg).defaultFeatures(); f.HostNetwork != tt.want {
			t.Errorf("%s: HostNetwork = %v, want %v", name, f.HostNetwork, tt.want)
		}
	}
}
