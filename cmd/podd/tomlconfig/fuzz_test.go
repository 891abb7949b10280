package tomlconfig

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// FuzzMerge: no document makes Merge panic, and what it accepts survives being dumped and merged again.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{
		"", "root = \"/a\"", "[log]\nlevel = 'x'\ntags = [\"a\", \"b\"]", "[handlers.\"a.b\"]\nwait = \"1m\"",
		"env = {a = \"\\u0000\"}", "[[log]]", "count = 0x7f\nratio = nan", "log.level = \"\"\"\nx\"\"\"", "root = 1979-05-27",
	} {
		f.Add([]byte(seed), []byte("[log]\nlevel = \"x\""))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		first := defaults()
		s := New(&first)
		for _, document := range [][]byte{a, b} {
			if wrong, err := s.Merge("document", document); err != nil || len(wrong) > 0 {
				return
			}
		}
		var dump bytes.Buffer
		if err := s.Dump(&dump); err != nil {
			t.Fatal(err)
		}
		again := defaults()
		if wrong, err := New(&again).Merge("dump", dump.Bytes()); err != nil || len(wrong) > 0 {
			t.Fatalf("%v, %v in\n%s", wrong, err, dump.String())
		}
		if d := cmp.Diff(first, again, cmp.AllowUnexported(config{}), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("-first +again:\n%s\n%s", d, dump.String())
		}
	})
}

// FuzzAssign: a command line can set the key it names and no other.
func FuzzAssign(f *testing.F) {
	f.Add("root", "/a")
	f.Add("log.tags", `["x"]`)
	f.Add("count", "5 # x")
	f.Add("#", "x")
	f.Add("log", "{level = \"x\"}")
	f.Fuzz(func(t *testing.T, key, value string) {
		cfg := defaults()
		s := New(&cfg)
		err := s.Assign("o", key, value)
		maps.DeleteFunc(s.origins, func(set, _ string) bool { return strings.HasPrefix(Key(key), set+".") }) // tables
		if err == nil && len(s.origins) != 1 && !strings.HasPrefix(strings.TrimSpace(value), "{") {
			t.Fatalf("%q=%q set %v", key, value, s.origins)
		}
	})
}
