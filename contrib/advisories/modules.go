package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"

	"github.com/podd-project/podd/oci/runc/advisory"
)

// goMod is the module that podd is built from.
const goMod = "go.mod"

// requirements returns the versions of the modules that podd is built from. As the module graph is pruned, go.mod names
// them all. The Go release is not among them: it is the builder's, and "make vulncheck" checks it.
func requirements(root string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(root, goMod))
	if err != nil {
		return nil, err
	}
	file, err := modfile.ParseLax(goMod, data, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, r := range file.Require {
		out[r.Mod.Path] = r.Mod.Version
	}
	return out, nil
}

// moduleRoots have a go.mod of what podd is built from.
var moduleRoots = []string{".", "oci/vm"}

// modulesOf returns the modules that the modules in roots are built from, sorted.
func modulesOf(roots []string) ([]string, error) {
	all := slices.Clone(standardModules)
	for _, root := range roots {
		used, err := requirements(root)
		if err != nil {
			return nil, err
		}
		all = slices.AppendSeq(all, maps.Keys(used))
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// minimum returns, for each module with advisories, the newest version with a fix that podd has.
func minimum(used map[string]string, known map[string][]advisory.Advisory) map[string]string {
	fixed := map[string]string{}
	for module, have := range used {
		for _, a := range known[module] {
			for _, r := range a.Ranges {
				v := "v" + r.Fixed
				if r.Fixed != "" && semver.Compare(v, have) <= 0 && semver.Compare(v, fixed[module]) > 0 {
					fixed[module] = v
				}
			}
		}
	}
	return fixed
}

func writeMinimum(path, date string, versions map[string]string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by contrib/advisories from the Go vulnerability database of %s.\n", date)
	for _, module := range slices.Sorted(maps.Keys(versions)) {
		fmt.Fprintln(&b, module, versions[module])
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// readMinimum reads what writeMinimum wrote.
func readMinimum(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if module, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok && module != "#" {
			out[module] = version
		}
	}
	return out, nil
}
