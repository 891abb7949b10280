package report

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Results are the last results of specs, by name, of several runs together. In a file each is a line, with the day of
// the run before it, and the message of one that did not pass.
type Results map[string]result

type result struct {
	passed bool
	text   string
}

// line is a spec's line: day, state, duration, name.
var line = regexp.MustCompile(`^\d{4}-\d\d-\d\d (\w+) +[\d.]+s  (.+)\n$`)

// Load returns the results in a file, none if it does not exist.
func Load(file string) (Results, error) {
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	r, last := Results{}, ""
	for text := range strings.Lines(string(data)) {
		fields := line.FindStringSubmatch(text)
		switch {
		case fields != nil:
			last = fields[2]
			r[last] = result{passed: fields[1] == "passed", text: text}
		case strings.HasPrefix(text, "\t") && last != "":
			r[last] = result{text: r[last].text + text}
		case !strings.HasPrefix(text, "#"):
			return nil, fmt.Errorf("%s: %q is not the result of a spec", file, text)
		}
	}
	return r, nil
}

// Add adds the results of a run on a day. Specs that did not end, because the run was stopped, are not added.
func (r Results) Add(day time.Time, specs []Spec) {
	for _, s := range specs {
		if s.State == "passed" || s.State == "failed" || s.State == "panicked" || s.State == "skipped" {
			r[s.Name()] = result{passed: s.State == "passed", text: day.Format(time.DateOnly) + " " + s.text()}
		}
	}
}

// Passed lists the specs that passed.
func (r Results) Passed() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if r[name].passed {
			names = append(names, name)
		}
	}
	return names
}

// Save writes the results to a file, after a comment.
func (r Results) Save(file, comment string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n# %d specs passed, %d did not.\n", strings.ReplaceAll(comment, "\n", "\n# "), len(r.Passed()),
		len(r)-len(r.Passed()))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		b.WriteString(r[name].text)
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, []byte(b.String()), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
