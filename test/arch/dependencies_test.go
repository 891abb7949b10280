package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// TestDependenciesHaveReasons: contrib/dependencies.md has each module that go.mod requires directly, and no others.
func TestDependenciesHaveReasons(t *testing.T) {
	mod := readModule(t, "../../go.mod")
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

// TestModulesFollow: a module that uses podd's requires nothing in an older version than podd does, or Go refuses to
// build it. The suites outside of CI have such modules.
func TestModulesFollow(t *testing.T) {
	podd := readModule(t, "../../go.mod")
	want := map[string]string{}
	for _, r := range podd.Require {
		want[r.Mod.Path] = r.Mod.Version
	}
	followers := 0
	for _, file := range moduleFiles(t) {
		mod := readModule(t, file)
		uses := func(r *modfile.Replace) bool { return r.Old.Path == podd.Module.Mod.Path }
		if !slices.ContainsFunc(mod.Replace, uses) {
			continue
		}
		followers++
		for _, r := range mod.Require {
			if v := want[r.Mod.Path]; v != "" && semver.Compare(r.Mod.Version, v) < 0 {
				t.Errorf("%s has %s, podd %s: run go mod tidy there", file, r.Mod, v)
			}
		}
	}
	if followers < 5 {
		t.Errorf("%d modules that use podd were found, want all", followers)
	}
}

// moduleFiles returns the go.mod files of the repository.
func moduleFiles(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || path == "../../bin") {
			return fs.SkipDir
		}
		if d != nil && d.Name() == "go.mod" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readModule(t *testing.T, file string) *modfile.File {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(file, data, nil)
	if err != nil {
		t.Fatal(err)
	}
	return mod
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
