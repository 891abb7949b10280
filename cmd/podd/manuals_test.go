package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// contrib/release runs this test with the flag, so that the daemon does not contain the generator of manual pages.
var manuals = flag.String("manuals", "", "directory to which TestManuals writes the manual pages and completions")

// TestManuals writes a page for each command, podd.toml(5) and the shell completions, and checks that they are
// complete.
func TestManuals(t *testing.T) {
	dir := cmp.Or(*manuals, t.TempDir())
	root := newRootCommand()
	man := filepath.Join(dir, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		t.Fatal(err)
	}
	header := &doc.GenManHeader{Section: "8", Date: new(manualDate(t)), Source: "podd", Manual: "podd"}
	if err := doc.GenManTree(root, header, man); err != nil {
		t.Fatal(err)
	}
	page := configManual(t, header.Date.Format("Jan 2006"))
	if err := os.WriteFile(filepath.Join(man, "podd.toml.5"), page, 0o644); err != nil {
		t.Fatal(err)
	}
	writeCompletions(t, root, filepath.Join(dir, "completions"))

	eachCommand(root, func(c *cobra.Command) {
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".8"
		text, err := os.ReadFile(filepath.Join(man, name))
		if err != nil || !bytes.Contains(text, []byte(".SH SYNOPSIS")) {
			t.Errorf("%s (%v) has no synopsis:\n%s", name, err, text)
		}
	})
	checkManuals(t, man)
}

// manualDate returns SOURCE_DATE_EPOCH, with which the same commit gives the same pages.
func manualDate(t *testing.T) time.Time {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now()
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		t.Fatalf("SOURCE_DATE_EPOCH: %v", err)
	}
	return time.Unix(seconds, 0).UTC()
}

// eachCommand calls visit for c and every command below it that has a page.
func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && !sub.IsAdditionalHelpTopicCommand() {
			eachCommand(sub, visit)
		}
	}
}

// configManual returns podd.toml(5): the output of `podd config default` with its tables as sections and each key with
// its comment below it.
func configManual(t *testing.T, date string) []byte {
	var file, page bytes.Buffer
	if err := settings.WriteDefault(&file); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&page, ".TH \"PODD.TOML\" \"5\" %q \"podd\" \"podd\"\n", date)
	page.WriteString(".SH NAME\npodd.toml \\- configuration of podd\n.SH DESCRIPTION\n")
	var comment []string
	keys := 0
	for line := range strings.Lines(file.String()) {
		line = strings.TrimRight(line, "\n")
		text, isComment := strings.CutPrefix(line, "# ")
		switch {
		case isComment:
			comment = append(comment, roff(text))
		case line == "" || line == "#":
			page.WriteString(".PP\n" + joinLines(comment))
			comment = nil
		case strings.HasPrefix(line, "["):
			fmt.Fprintf(&page, ".SH %s\n%s", roff(line), joinLines(comment))
			comment = nil
		default:
			fmt.Fprintf(&page, ".TP\n\\fB%s\\fP\n%s", roff(strings.TrimPrefix(line, "#")), joinLines(comment))
			comment = nil
			keys++
		}
	}
	page.WriteString(".SH SEE ALSO\n.BR podd (8),\n.BR podd-config (8)\n")
	if c := settings.Default(); keys < 50 {
		t.Errorf("podd.toml(5) has %d keys of %T, want all", keys, c)
	}
	return page.Bytes()
}

// roff returns a line of text with what is special in roff escaped.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

func joinLines(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// writeCompletions writes the completion of each shell, under the name by which the shell finds it.
func writeCompletions(t *testing.T, root *cobra.Command, dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const descriptions = true
	for name, generate := range map[string]func(*bytes.Buffer) error{
		"podd":      func(w *bytes.Buffer) error { return root.GenBashCompletionV2(w, descriptions) },
		"_podd":     func(w *bytes.Buffer) error { return root.GenZshCompletion(w) },
		"podd.fish": func(w *bytes.Buffer) error { return root.GenFishCompletion(w, descriptions) },
	} {
		var script bytes.Buffer
		if err := generate(&script); err != nil {
			t.Fatalf("completion %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), script.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// checkManuals has mandoc read the pages, where it is installed.
func checkManuals(t *testing.T, dir string) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		return
	}
	pages, err := filepath.Glob(dir + "/*")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%d pages, error %v", len(pages), err)
	}
	out, err := exec.CommandContext(t.Context(), mandoc, append([]string{"-T", "lint", "-W", "error"}, pages...)...).
		CombinedOutput()
	if err != nil {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}
