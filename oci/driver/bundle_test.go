package driver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestBundleIsPrivate(t *testing.T) {
	b := Bundle(filepath.Join(t.TempDir(), "run", "c"))
	if err := b.Create(&specs.Spec{Version: "1.0.2", Process: &specs.Process{Env: []string{"A=<>&"}}}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{b.Dir(): 0o700, b.Config(): 0o600, filepath.Dir(b.Dir()): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode = %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	// Plain text: the run directory is in memory.
	if text, err := os.ReadFile(b.Config()); err != nil || !strings.Contains(string(text), `"A=<>&"`) {
		t.Errorf("config.json = %s, %v; want A=<>& without escapes", text, err)
	}
	if err := b.Create(&specs.Spec{}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second Create = %v, want already exists", err)
	}
}
