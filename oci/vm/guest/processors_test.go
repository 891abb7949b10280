package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// TestUseProcessors: processors that do not run are started. The first one has no switch.
func TestUseProcessors(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"cpu0", "cpu1", "cpu2", "cpufreq"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, state := range map[string]string{"cpu1": "1\n", "cpu2": "0\n"} {
		if err := os.WriteFile(filepath.Join(dir, name, "online"), []byte(state), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := useProcessors(dir, 3); err != nil {
		t.Fatal(err)
	}
	state, err := os.ReadFile(filepath.Join(dir, "cpu2", "online"))
	if err != nil || string(state) != "1" {
		t.Errorf("switch of the processor that did not run = %q, %v, want 1", state, err)
	}
}
