package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuildTagsAgree: whatever builds or tests podd uses the tags of the Makefile. Without one of them another program
// would be tested than the one that is installed.
func TestBuildTagsAgree(t *testing.T) {
	tags := strings.Split(makefileVariable(t, "TAGS"), ",")
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../..", path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name == "test/bench/peers" || strings.HasPrefix(name, ".") && name != "."):
			return fs.SkipDir // peers are other programs
		case d.IsDir(), filepath.Ext(name) != ".go" && filepath.Ext(name) != ".sh" && filepath.Ext(name) != "":
			return nil
		}
		text, err := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if missing := missingTags(line, tags); len(missing) > 0 && len(missing) < len(tags) {
				t.Errorf("%s: %q does not have the tags %v of the Makefile", name, strings.TrimSpace(line), missing)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func missingTags(line string, tags []string) (missing []string) {
	for _, tag := range tags {
		if !strings.Contains(line, tag) {
			missing = append(missing, tag)
		}
	}
	return missing
}

func makefileVariable(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":="); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the Makefile does not set %s", name)
	return ""
}
