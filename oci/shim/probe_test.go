package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"google.golang.org/protobuf/proto"
)

// TestShimSaysWhatItLacks: a shim that cannot run pods as it is configured makes its handler not ready, with the
// reason; a warning is kept.
func TestShimSaysWhatItLacks(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "containerd-shim-x-v1")
	script := "#!/bin/sh\n[ \"$1\" != -info ] || exec cat " + dir + "/info\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ annotation, text, unusable, warning string }{
		{"podd.unusable", "no guest image", "no guest image", ""},
		{"podd.unusable", strings.Repeat("x", 2*annotationLimit), strings.Repeat("x", annotationLimit) + ":", ""},
		{"podd.warning", "emulated", "", "emulated"},
		{"other", "text", "", ""},
	} {
		data, err := proto.Marshal(&types.RuntimeInfo{Annotations: map[string]string{c.annotation: c.text}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "info"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r := New(Config{Name: "x", Path: program, Stdio: "/stdio", Log: logrus.New()})
		err = r.Probe(t.Context())
		if c.unusable == "" && err != nil ||
			c.unusable != "" && (!errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), c.unusable)) {
			t.Errorf("%s: Probe = %v, want unavailable with %q", c.annotation, err, c.unusable)
		}
		if err == nil && r.Features().Warning != c.warning {
			t.Errorf("%s: Warning = %q, want %q", c.annotation, r.Features().Warning, c.warning)
		}
	}
}

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
