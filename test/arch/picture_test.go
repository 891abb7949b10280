package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestPicture: the picture of the README has the packages of the top level, and its arrows between packages are imports
// that the table allows and the code has.
func TestPicture(t *testing.T) {
	svg, err := os.ReadFile("../../contrib/docs/parts.svg")
	if err != nil {
		t.Fatal(err)
	}
	drawn := map[string]bool{}
	for _, m := range regexp.MustCompile(`data-package="([^"]+)"`).FindAllSubmatch(svg, -1) {
		drawn[string(m[1])] = true
	}
	for _, name := range []string{"cmd", "server", "oci", "sandbox", "image", "network", "streaming", "checkpoint"} {
		if !drawn[name] {
			t.Errorf("package %s is not in the picture", name)
		}
		delete(drawn, name)
	}
	imports := map[string]bool{}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			imports[p.ImportPath+" "+imp] = true
		}
	}
	arrows := regexp.MustCompile(`data-imports="(\S+) (\S+)"`).FindAllSubmatch(svg, -1)
	for _, m := range arrows {
		if !imports[module+string(m[1])+" "+module+string(m[2])] {
			t.Errorf("the picture has an arrow from %s to %s, which it does not import", m[1], m[2])
		}
	}
	if len(arrows) < 7 {
		t.Errorf("only %d arrows are imports", len(arrows))
	}
	for name := range drawn {
		if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
			t.Errorf("package %s of the picture: %v", name, err)
		}
	}
}
