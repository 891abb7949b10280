package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxMarkdown is how many words the pages of the repository may have together. Say each thing once, and link to it.
const maxMarkdown = 40_000

func TestMarkdownIsShort(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "-z", "*.md",
		":!test/NIGHTLY.md").Output() // generated
	if err != nil {
		t.Fatalf("list the pages of the repository: %v", err)
	}
	words := 0
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) { // removed, but not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		words += len(strings.Fields(string(text)))
	}
	t.Logf("%d words, limit %d", words, maxMarkdown)
	if words == 0 || words > maxMarkdown {
		t.Errorf("all Markdown has %d words, want at most %d: remove facts that the code or another page has", words,
			maxMarkdown)
	}
}
