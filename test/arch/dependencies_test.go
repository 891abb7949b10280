package arch

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// TestDependenciesHaveReasons: contrib/dependencies.md has each module that go.mod requires directly, and no others.
func TestDependenciesHaveReasons(t *testing.T) {
	data, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse("go.mod", data, nil)
	if err != nil {
		t.Fatal(err)
	}
	listed := listedModules(t)
	for _, r := range mod.Require {
		if i := slices.Index(listed, r.Mod.Path); i >= 0 {
			listed = slices.Delete(listed, i, i+1)
		} else if !r.Indirect {
			t.Errorf("contrib/dependencies.md does not have %s, want a row with the reason", r.Mod.Path)
		}
	}
	for _, path := range listed {
		t.Errorf("contrib/dependencies.md has %s, which go.mod does not require", path)
	}
}

// alternatives are names in braces: github.com/google/{go-cmp,go-containerregistry}.
var alternatives = regexp.MustCompile(`^(.*)\{(.*)\}$`)

// listedModules returns the modules that the first cells of the table name.
func listedModules(t *testing.T) (paths []string) {
	t.Helper()
	for _, cells := range tableRows(t, "../../contrib/dependencies.md") {
		for name := range strings.SplitSeq(strings.TrimPrefix(cells[0], "tests: "), ", ") {
			m := alternatives.FindStringSubmatch(name)
			if m == nil {
				paths = append(paths, name)
				continue
			}
			for last := range strings.SplitSeq(m[2], ",") {
				paths = append(paths, m[1]+last)
			}
		}
	}
	return paths
}
