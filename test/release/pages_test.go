package release

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var (
	pageLink = regexp.MustCompile(`\]\(([^)#\s]+)`)
	pagePath = regexp.MustCompile("(?m)(?:^|[\\s`])(contrib/[\\w./-]+)")
)

// TestPages: what the pages for users link to, or name below contrib, is in the package.
func TestPages(t *testing.T) {
	dir := t.TempDir()
	run(t, []string{"DEB=" + deb(t, "amd64"), "DIR=" + dir}, `dpkg-deb -x "$DEB" "$DIR"`)
	doc := filepath.Join(dir, "usr/share/doc/podd")
	pages, err := filepath.Glob(filepath.Join(doc, "contrib/docs/*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("the package has %d pages for users, error %v, want all", len(pages), err)
	}
	checked := 0
	for _, page := range pages {
		for _, path := range named(t, doc, page) {
			checked++
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d links and paths were found, want those of all pages", checked)
	}
}

// named returns the paths in the package, whose documents are in doc, that a page links to or names.
func named(t *testing.T, doc, page string) (paths []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pageLink.FindAllStringSubmatch(string(text), -1) {
		if !regexp.MustCompile(`^\w+://`).MatchString(m[1]) {
			paths = append(paths, filepath.Join(filepath.Dir(page), m[1]))
		}
	}
	// A step for a checkout: the package has installed the unit, with its own path of the binary.
	inCheckout := []string{"contrib/systemd/podd.service"}
	for _, m := range pagePath.FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(inCheckout, m[1]) {
			paths = append(paths, filepath.Join(doc, m[1]))
		}
	}
	return paths
}
