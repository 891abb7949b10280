package vm

import (
	"os"
	"strings"
	"testing"
)

// steps returns the shell commands of the section "Join a cluster" of contrib/docs/install.md, up to and after the line
// "To leave". A line of a code block is one command.
func steps(t *testing.T) (join, leave []string) {
	t.Helper()
	page, err := os.ReadFile("../../../contrib/docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Join a cluster\n")
	section, _, _ = strings.Cut(section, "\n## ")
	entering, leaving, found := strings.Cut(section, "\nTo leave")
	join, leave = commands(entering), commands(leaving)
	if !found || len(join) < 5 || len(leave) < 2 {
		t.Fatalf("contrib/docs/install.md, \"Join a cluster\": commands %q and %q, want those to join and those to "+
			"leave", join, leave)
	}
	return join, leave
}

// commands returns the lines of the code blocks of the language sh.
func commands(text string) (lines []string) {
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```sh"
		case inside && line != "":
			lines = append(lines, line)
		}
	}
	return lines
}
