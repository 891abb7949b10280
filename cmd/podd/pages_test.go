package main

import (
	"cmp"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podd-project/podd/cmd/podd/settings"
)

// repository is where the pages are, seen from this package.
const repository = "../.."

// page is a Markdown file: its prose without code blocks, and the blocks.
type page struct {
	name   string
	prose  string
	blocks []block
}

// block is the text of a code block, and its language.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")

// readPages returns all Markdown files of the repository.
func readPages(t *testing.T) (pages []page) {
	t.Helper()
	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		p := page{name: name, prose: fence.ReplaceAllString(string(text), "")}
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			p.blocks = append(p.blocks, block{m[1], m[2]})
		}
		pages = append(pages, p)
	}
	if len(pages) < 20 {
		t.Fatalf("git lists %d pages, want all of the repository", len(pages))
	}
	return pages
}

// forUsers reports whether a page is read on nodes: it names keys by their full names.
func (p page) forUsers() bool { return p.name == "README.md" || path.Dir(p.name) == "contrib/docs" }

// tracked returns the files that git has.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", repository, "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("list the files of the repository: %v", err)
	}
	files := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(name string) bool { // removed, but not yet committed
		_, err := os.Lstat(filepath.Join(repository, name))
		return err != nil
	})
}

var quoted = regexp.MustCompile("`([^`\n]+)`")

// phrases returns what the prose has between backquotes.
func (p page) phrases() (out []string) {
	for _, m := range quoted.FindAllStringSubmatch(p.prose, -1) {
		out = append(out, m[1])
	}
	return out
}

// commands returns the commands of the shell blocks: pipes, lists and substitutions are split.
func (p page) commands() (out []string) {
	for _, b := range p.blocks {
		if b.language == "sh" {
			out = append(out, shellCommands(b.text)...)
		}
	}
	return out
}

var (
	comment   = regexp.MustCompile(`(^|\s)#.*`)
	separator = regexp.MustCompile(`\|\|?|&&|;|\$\(`)
	redirect  = regexp.MustCompile(`\s[0-9]?[<>&].*`)
)

func shellCommands(text string) (out []string) {
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		for _, part := range separator.Split(comment.ReplaceAllString(line, ""), -1) {
			if part = strings.TrimSpace(redirect.ReplaceAllString(part, "")); part != "" {
				out = append(out, part)
			}
		}
	}
	return out
}

// TestPagesNameCommands: each command line of podd on a page has a subcommand, flags and, in a block, arguments that
// podd accepts.
func TestPagesNameCommands(t *testing.T) {
	checked := 0
	for _, p := range readPages(t) {
		check := func(line string, whole bool) {
			words := strings.Fields(line)
			if !slices.Contains([]string{"podd", "bin/podd", "/tmp/podd"}, words[0]) || slices.Contains(words, "...") {
				return
			}
			checked++
			if err := checkCommand(words[1:], whole); err != nil {
				t.Errorf("%s: %q: %v", p.name, line, err)
			}
		}
		for _, phrase := range p.phrases() {
			for _, c := range shellCommands(phrase) {
				check(c, false)
			}
		}
		for _, c := range p.commands() {
			check(c, true)
		}
	}
	if checked < 100 {
		t.Errorf("%d command lines were found, want those of all pages", checked)
	}
}

func checkCommand(words []string, whole bool) error {
	cmd, rest, err := newRootCommand().Find(words)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	args := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(args) > 0 {
		return noArgs(cmd, args)
	}
	if whole {
		return cmd.ValidateArgs(args)
	}
	return nil
}

// keysOf returns the names of all keys and tables of the configuration, and the last parts of their names.
func keysOf(t *testing.T) (full, last map[string]bool) {
	t.Helper()
	var document strings.Builder
	if err := settings.WriteDefault(&document); err != nil {
		t.Fatal(err)
	}
	full, last = map[string]bool{}, map[string]bool{}
	table := ""
	line := regexp.MustCompile(`(?m)^(?:\[(.+)\]|#([a-z_]+) = .*)$`)
	for _, m := range line.FindAllStringSubmatch(document.String(), -1) {
		name := m[1]
		if table = cmp.Or(name, table); name == "" {
			name = strings.TrimPrefix(table+"."+m[2], ".")
		}
		full[name] = true
		last[name[strings.LastIndex(name, ".")+1:]] = true
	}
	if len(full) < 100 {
		t.Fatalf("%d keys and tables were found, want all of podd config default", len(full))
	}
	return full, last
}

// foreign are names on the pages for users that look like keys and are others'.
var foreign = strings.Fields("runtime.v1 selinux_relabel apparmor_parser container_t container_file_t " +
	"container_runtime_t container_fs_usage_bytes container_fs_limit_bytes discard_unpacked_layers oom_score_adj")

var (
	sections  = `(?:runtime|image|network|nri|streaming|log|metrics|tracing|cadvisor)`
	fullKey   = regexp.MustCompile(`^\[?(` + sections + `(?:\.\w+)+)\]?$`)
	shortKey  = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)
	firstCell = regexp.MustCompile(`(?m)^\|[^|]*\|`)
	handlers  = regexp.MustCompile(`^runtime\.handlers\.\w+`)
)

// TestPagesNameKeys: what the pages for users write as a key of the configuration is one.
func TestPagesNameKeys(t *testing.T) {
	full, last := keysOf(t)
	checked := 0
	for _, p := range readPages(t) {
		if !p.forUsers() {
			continue
		}
		if strings.HasPrefix(path.Base(p.name), "from-") { // the first column of its tables has the other runtime's keys
			p.prose = firstCell.ReplaceAllString(p.prose, "")
		}
		for _, phrase := range p.phrases() {
			if testName.MatchString(phrase) || slices.Contains(foreign, phrase) {
				continue
			}
			if m := fullKey.FindStringSubmatch(phrase); m != nil {
				checked++
				if !full[handlers.ReplaceAllString(m[1], "runtime.handlers.runc")] {
					t.Errorf("%s: %q is not a key, see podd config default", p.name, phrase)
				}
			} else if shortKey.MatchString(phrase) && !strings.HasPrefix(phrase, "podd_") {
				checked++
				if !last[phrase] {
					t.Errorf("%s: %q is neither the end of a key, see podd config default, nor in foreign", p.name, phrase)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d keys were found, want those of all pages", checked)
	}
}

var written = regexp.MustCompile(`(?s)printf '(\[[^']*)' >\S*podd\.toml|podd\.toml <<END\n(.*?)\nEND`)

// TestConfigurationsOfPages: podd accepts each configuration on the pages for users, in a block of TOML or written by a
// command. A block for another program begins with a comment that has the name of its file.
func TestConfigurationsOfPages(t *testing.T) {
	checked := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			var texts []string
			if b.language == "toml" && !strings.HasPrefix(b.text, "# /etc/containers/") {
				texts = append(texts, b.text)
			}
			for _, m := range written.FindAllStringSubmatch(b.text, -1) {
				texts = append(texts, strings.ReplaceAll(m[1], `\n`, "\n")+strings.ReplaceAll(m[2], "$PWD", "/x"))
			}
			for _, text := range texts {
				checked++
				file := filepath.Join(t.TempDir(), "podd.toml")
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				var out strings.Builder
				if status := execute([]string{"config", "check", "--config", file}, &out, &out); status != 0 {
					t.Errorf("%s: podd config check = %d of\n%s\n%s", p.name, status, text, out.String())
				}
			}
		}
	}
	if checked < 5 {
		t.Errorf("%d configurations were found, want those of all pages", checked)
	}
}

// TestPagesNameTargets: each target of make on a page is in the Makefile.
func TestPagesNameTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	checked := 0
	for _, p := range readPages(t) {
		lines := p.commands()
		for _, phrase := range p.phrases() {
			lines = append(lines, shellCommands(phrase)...)
		}
		for _, line := range lines {
			words := strings.Fields(line)
			if i := slices.Index(words, "make"); i < 0 || slices.ContainsFunc(words[:i], isWord) {
				continue
			}
			for _, word := range words[slices.Index(words, "make")+1:] {
				if !isWord(word) {
					continue
				}
				if checked++; !targets[word] {
					t.Errorf("%s: %q: the Makefile has no target %s", p.name, line, word)
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d targets were found, want those of all pages", checked)
	}
}

func isWord(s string) bool { return regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(s) }

var testName = regexp.MustCompile(`\.?(Test|Fuzz|Benchmark)[A-Z]`)

// TestPagesNameFiles: each path on a page that begins with a folder of the repository is there.
func TestPagesNameFiles(t *testing.T) {
	top, known := map[string]bool{}, map[string]bool{".": true}
	for _, name := range tracked(t) {
		for dir := name; !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
		}
		if first, _, below := strings.Cut(name, "/"); below {
			top[first] = true
		}
	}
	checked := 0
	for _, p := range readPages(t) {
		for _, phrase := range append(p.phrases(), p.commands()...) {
			for word := range strings.FieldsSeq(phrase) {
				word = strings.Trim(word, `/,.:"'()`)
				word = strings.TrimSuffix(word, "/...")
				first, _, below := strings.Cut(word, "/")
				if !below || !top[first] || testName.MatchString(word) || strings.ContainsAny(word, "*{<$") {
					continue
				}
				if dot := strings.LastIndex(word, "."); dot > 0 && known[word[:dot]] {
					word = word[:dot] // a name of a package
				}
				if checked++; !known[word] && !known[path.Join(path.Dir(p.name), word)] && word != "test/NIGHTLY.md" {
					t.Errorf("%s: %q: the repository has no %s", p.name, phrase, word)
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d paths were found, want those of all pages", checked)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestLinksOfPages: each link leads to a file of the repository, and to a heading that it has.
func TestLinksOfPages(t *testing.T) {
	known := tracked(t)
	checked := 0
	for _, p := range readPages(t) {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			target, anchor, _ := strings.Cut(m[1], "#")
			file := p.name
			if target != "" {
				file = path.Join(path.Dir(p.name), target)
			}
			below := func(name string) bool { return name == file || strings.HasPrefix(name, file+"/") }
			if !slices.ContainsFunc(known, below) {
				t.Errorf("%s: the link %s leads to no file of the repository", p.name, m[1])
			} else if anchor != "" && !slices.Contains(anchors(t, file), anchor) {
				t.Errorf("%s: the link %s leads to no heading of %s", p.name, m[1], file)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d links were found, want those of all pages", checked)
	}
}

// anchors returns the names by which links find the headings of a page.
func anchors(t *testing.T, name string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(string(text), ""), -1) {
		plain := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(link.ReplaceAllString(m[1], "")), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// TestPagesAreShort: a README that is read in five minutes, and pages of one question each.
func TestPagesAreShort(t *testing.T) {
	total := 0
	for _, p := range readPages(t) {
		text, err := os.ReadFile(filepath.Join(repository, p.name))
		if err != nil {
			t.Fatal(err)
		}
		n := len(strings.Fields(string(text)))
		switch {
		case p.name == "README.md" && n > 900:
			t.Errorf("README.md has %d words, want at most 900", n)
		case p.name != "README.md" && p.forUsers():
			total += n
		}
	}
	if total == 0 || total > 7000 {
		t.Errorf("contrib/docs has %d words, want at most 7000", total)
	}
}
