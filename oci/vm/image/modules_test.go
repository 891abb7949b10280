package image

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFindModules: dependencies come first, a module once, and one that the kernel has built in is left out.
func TestFindModules(t *testing.T) {
	dirs, _ := filepath.Glob("/lib/modules/*/kernel")
	more, _ := filepath.Glob("/usr/lib/uml/modules/*/kernel")
	for _, dir := range append(dirs, more...) {
		modules, err := findModules(filepath.Dir(dir), []string{"bridge", "bridge", "no-such-module"})
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		var names []string
		for _, m := range modules {
			names = append(names, m.name)
		}
		if len(names) == 0 {
			continue // built in
		}
		if last := names[len(names)-1]; last != "bridge" || !slices.Contains(names, "llc") {
			t.Errorf("%s: modules = %v, want bridge after llc", dir, names)
		}
	}
}

func TestFindModulesRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.ko"), []byte("no module"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := findModules(dir, []string{"a"}); err == nil {
		t.Error("findModules with a file that is no module = nil, want an error")
	}
}
