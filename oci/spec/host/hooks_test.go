package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestInjectHooks: hooks see the annotations of the pod and of the container, later directories override files.
func TestInjectHooks(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	write := func(dir, name, path, annotation string) {
		t.Helper()
		text := `{"version": "1.0.0", "hook": {"path": "` + path + `"}, "when": {"annotations": {"^` + annotation +
			`$": "."}}, "stages": ["poststop"]}`
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(first, "a.json", "/bin/false", "pod")
	write(second, "a.json", "/bin/true", "pod")
	write(first, "b.json", "/bin/sh", "container")
	write(first, "c.json", "/bin/cat", "absent")
	pod := &cri.PodSandboxConfig{Annotations: map[string]string{"pod": "x"}}
	c := &cri.ContainerConfig{Annotations: map[string]string{"container": "x"}}
	s := &specs.Spec{Process: &specs.Process{Args: []string{"x"}}}
	if err := InjectHooks(s, []string{first, second, "/none"}, pod, c); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range s.Hooks.Poststop {
		got = append(got, h.Path)
	}
	if want := "/bin/true /bin/sh"; strings.Join(got, " ") != want {
		t.Errorf("hooks = %v, want %s", got, want)
	}
	bad := filepath.Join(second, "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := InjectHooks(s, []string{second}, pod, c); err == nil || !strings.Contains(err.Error(), "bad.json") {
		t.Errorf("error = %v, want one that names bad.json", err)
	}
}
