package shim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
)

// TestStateOfADeadSandbox: what the runtime has left of a container goes with it, what it has of others stays.
func TestStateOfADeadSandbox(t *testing.T) {
	dir := t.TempDir()
	r := New(Config{
		Root: dir, RunDir: filepath.Join(dir, "run"), Path: filepath.Join(dir, "containerd-shim-none-v1"), Log: logrus.New(),
	})
	state := filepath.Join(dir, "state", "k8s.io")
	for _, d := range []string{state, filepath.Join(dir, "run", "c")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{
		"c_sandbox:pod.state", "c_sandbox:pod.lock", "c2_sandbox:pod.state", "pod_sandbox:pod.state",
	} {
		if err := os.WriteFile(filepath.Join(state, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Delete(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(state, "*"))
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "c2_sandbox:pod.state" ||
		filepath.Base(left[1]) != "pod_sandbox:pod.state" {
		t.Errorf("files = %q, %v, want those of c2 and pod", left, err)
	}
}
