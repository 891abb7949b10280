package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci"
)

// hangingProbe is a handler whose runtime does not answer.
type hangingProbe struct{}

func (hangingProbe) Probe(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingProbe) Features() oci.Features { return oci.Features{} }

// TestReportHandler: a runtime that does not answer is reported, unless podd has not waited for it: `podd check` and
// `podd wipe` may end first.
func TestReportHandler(t *testing.T) {
	for name, tt := range map[string]struct {
		ended bool
		want  string
	}{
		"the probe times out":        {want: "runtime handler is not ready"},
		"podd ends before the probe": {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, lines := logtest.NewNullLogger()
				d := &daemon{cfg: settings.Default(), log: log}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.ended {
					cancel(errStopped)
				}
				d.reportHandler(ctx, &d.cfg.Runtime, "runc", "runc", hangingProbe{})
				var got []string
				for _, line := range lines.AllEntries() {
					got = append(got, line.Message)
				}
				if text := strings.Join(got, "\n"); text != tt.want {
					t.Errorf("logged %q, want %q", text, tt.want)
				}
			})
		})
	}
}

func TestPluginVersion(t *testing.T) {
	dir := t.TempDir()
	write := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The script prints what the CNI project's plugins print without CNI_COMMAND, and fails with it.
	t.Setenv("CNI_COMMAND", "ADD")
	bridge := write("bridge", "#!/bin/sh\n[ -z \"$CNI_COMMAND\" ] || exit 1\n"+
		"echo 'CNI bridge plugin v1.9.1' >&2\necho 'CNI protocol versions supported: 1.0.0' >&2\n")
	if v, err := pluginVersion(t.Context(), bridge); err != nil || v != "v1.9.1" {
		t.Errorf("pluginVersion(bridge) = %q, %v, want v1.9.1", v, err)
	}
	if v, err := pluginVersion(t.Context(), write("silent", "#!/bin/sh\n")); err != nil || v != "unknown" {
		t.Errorf("pluginVersion(silent) = %q, %v, want unknown", v, err)
	}
	if _, err := pluginVersion(t.Context(), write("broken", "#!/bin/sh\nexit 3\n")); err == nil {
		t.Error("pluginVersion() of a failing plugin succeeded, want an error")
	}
	if _, err := pluginVersion(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Error("pluginVersion() of an absent plugin succeeded, want an error")
	}
}

func TestLocate(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for dir, mode := range map[string]os.FileMode{first: 0o644, second: 0o755} {
		if err := os.WriteFile(filepath.Join(dir, "runc"), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{first, second}
	for name, want := range map[string]string{
		"runc": filepath.Join(second, "runc"), "crun": "crun", "/usr/bin/x": "/usr/bin/x",
	} {
		if got := locate(name, dirs); got != want {
			t.Errorf("locate(%s) = %s, want %s", name, got, want)
		}
	}
}
