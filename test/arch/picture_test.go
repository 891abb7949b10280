package arch

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPicture: the picture of the README has each top level package of the product, and its arrows are imports of the
// code, or calls for which the picture says why they are none.
func TestPicture(t *testing.T) {
	svg, err := os.ReadFile("../../contrib/docs/parts.svg")
	if err != nil {
		t.Fatal(err)
	}
	drawn, imports := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`data-package="([^"]+)"`).FindAllSubmatch(svg, -1) {
		drawn[string(m[1])] = true
	}
	for _, p := range packages(t) {
		top, _, _ := strings.Cut(strings.TrimPrefix(p.ImportPath, module), "/")
		if top != "test" && !drawn[top] {
			t.Errorf("package %s is not in the picture", top)
		}
		for _, imp := range p.Imports {
			imports[p.ImportPath+" "+imp] = true
		}
	}
	for _, arrow := range regexp.MustCompile(`<line[^>]*>`).FindAllString(string(svg), -1) {
		m := regexp.MustCompile(`data-(imports|calls)="(\S+) ([^"]+)"`).FindStringSubmatch(arrow)
		switch {
		case m == nil:
			t.Errorf("%s: no data-imports and no data-calls", arrow)
		case m[1] == "imports" && !imports[module+m[2]+" "+module+m[3]]:
			t.Errorf("the picture has an arrow from %s to %s, which it does not import", m[2], m[3])
		}
	}
}
