package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tics are turns of phrase that native engineers hardly use, 0 to 0.2 times in 1,000 lines of comparable projects.
// CONTRIBUTING.md says what to write instead.
var tics = regexp.MustCompile(`(?i)\b(what (is|are|was|were|it|they|the|has|had|a|podd)|(is|are) (no|none of)|` +
	`of its own|meanwhile|anew|beside|any more|told|but for|for ever)\b`)

// usual is what the pattern matches by mistake.
var usual = regexp.MustCompile(`(?i)\b((is|are) no longer|there (is|are) (no|none))\b`)

// maxTics is how many of them the Go files of podd may have, tests left out. Lower it when there are fewer.
const maxTics = 30

func TestPlainWords(t *testing.T) {
	found := 0
	var files []string
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n := len(tics.FindAll(usual.ReplaceAll(text, nil), -1))
		if found += n; n > 0 && len(files) < 20 {
			files = append(files, strings.TrimPrefix(path, root+"/"))
		}
	}
	t.Logf("%d tics, limit %d", found, maxTics)
	if found > maxTics {
		t.Errorf("%d tics in the product's comments and strings, want at most %d: rewrite those that you added, by the "+
			"table in CONTRIBUTING.md; some are in %s", found, maxTics, strings.Join(files, ", "))
	}
}
