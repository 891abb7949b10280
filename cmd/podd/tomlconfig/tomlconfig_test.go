package tomlconfig

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type handler struct {
	Path string        `toml:"path" comment:"Binary."`
	Wait time.Duration `toml:"wait" comment:"How long."`
}

type inner struct {
	Level string   `toml:"level" comment:"How much."`
	Tags  []string `toml:"tags" comment:"Some tags."`
}

type embedded struct {
	Inline bool `toml:"inline" comment:"From an embedded struct."`
}

type config struct {
	Root  string  `toml:"root" comment:"Where state is."`
	Count int8    `toml:"count" comment:"A count."`
	Size  uint    `toml:"size"`
	Ratio float64 `toml:"ratio"`
	embedded
	Log      inner              `toml:"log" comment:"What is logged."`
	Handlers map[string]handler `toml:"handlers" comment:"The handlers."`
	Env      map[string]string  `toml:"env"`
	Hidden   string             `toml:"-"`
	Untagged string
}

// defaults is the struct every test starts from.
func defaults() config {
	return config{
		Root: "/var", Count: 1, Ratio: 0.5, Log: inner{Level: "info", Tags: []string{"a", "b"}},
		Handlers: map[string]handler{"runc": {Path: "runc", Wait: time.Minute}},
		Hidden:   "h", Untagged: "u",
	}
}

// merged lays documents, named f1, f2..., over the defaults.
func merged(t *testing.T, docs ...string) (config, *Set) {
	t.Helper()
	c := defaults()
	s := New(&c)
	for i, d := range docs {
		if wrong, err := s.Merge(fmt.Sprintf("f%d", i+1), []byte(d)); err != nil || len(wrong) > 0 {
			t.Fatal(wrong, err)
		}
	}
	return c, s
}

func TestMergePerKey(t *testing.T) {
	cases := map[string]struct {
		docs []string
		want func(*config)
	}{
		"nothing":                {nil, func(*config) {}},
		"empty document":         {[]string{""}, func(*config) {}},
		"scalars replace":        {[]string{`root = "/a"`, `root = "/b"`}, func(c *config) { c.Root = "/b" }},
		"a table keeps the rest": {[]string{"[log]\nlevel = \"debug\""}, func(c *config) { c.Log.Level = "debug" }},
		"arrays replace": {[]string{"[log]\ntags = [\"c\"]", "log.tags = []"},
			func(c *config) { c.Log.Tags = []string{} }},
		"a map entry merges": {[]string{"[handlers.runc]\nwait = \"5s\""},
			func(c *config) { c.Handlers["runc"] = handler{"runc", 5 * time.Second} }},
		"a map gains entries": {[]string{"[handlers.kata]\npath = \"/k\"", "[handlers.kata]\nwait = \"1s\""},
			func(c *config) { c.Handlers["kata"] = handler{"/k", time.Second} }},
		"a map entry that is only named": {[]string{"[handlers.kata]"}, func(c *config) { c.Handlers["kata"] = handler{} }},
		"inline and dotted": {[]string{`handlers = {kata = {path = "/k"}}` + "\nlog.level = \"warn\""},
			func(c *config) { c.Handlers["kata"] = handler{Path: "/k"}; c.Log.Level = "warn" }},
		"strings by name": {[]string{"[env]\nA = \"1\"\n\"b.c\" = \"2\"", "env.A = \"3\""},
			func(c *config) { c.Env = map[string]string{"A": "3", "b.c": "2"} }},
		"numbers": {[]string{"count = -128\nsize = 3\nratio = 2\ninline = true"},
			func(c *config) { c.Count, c.Size, c.Ratio, c.Inline = -128, 3, 2, true }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := merged(t, c.docs...)
			want := defaults()
			c.want(&want)
			if d := cmp.Diff(want, got, cmp.AllowUnexported(config{})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestMergeDoesNotTouchTheDefaultsMapOfOthers(t *testing.T) {
	a, _ := merged(t, "[handlers.runc]\npath = \"changed\"")
	b, _ := merged(t)
	if a.Handlers["runc"].Path != "changed" || b.Handlers["runc"].Path != "runc" {
		t.Errorf("a %+v b %+v", a.Handlers, b.Handlers)
	}
}

func TestMistakes(t *testing.T) {
	cases := map[string]struct{ doc, want string }{
		"unknown at the top": {"\n\nrot = \"/a\"", `f:3: unknown key "rot", the nearest known key is "root"`},
		"unknown in a table": {"[log]\nlevle = \"a\"",
			`f:2: unknown key "log.levle", the nearest known key is "log.level"`},
		"known elsewhere": {"level = \"a\"", `f:1: unknown key "level", the nearest known key is "log.level"`},
		"unknown table":   {"root = \"/\"\n[logs]\nx = 1", `f:2: unknown key "logs", the nearest known key is "log"`},
		"unknown below a map": {"[handlers.kata]\npth = \"a\"",
			`f:2: unknown key "handlers.kata.pth", the nearest known key is "handlers.kata.path"`},
		"unknown inline": {"\nhandlers = {\"k.1\" = {pth = \"a\"}}",
			`f:2: unknown key "handlers.\"k.1\".pth", the nearest known key is "handlers.\"k.1\".path"`},
		"wrong case":        {"Root = \"/a\"", `f:1: unknown key "Root", the nearest known key is "root"`},
		"hidden field":      {"Hidden = \"x\"", `f:1: unknown key "Hidden"`},
		"array of tables":   {"[[log]]\nlevel = \"x\"", "f:1: log is a table, not an array"},
		"text for a table":  {"log = \"x\"", `f:1: log is a table, not the string "x"`},
		"table for a text":  {"[root]\na = 1", "f:1: root: want a string in quotes, not a table"},
		"number for a text": {"root = 5", "f:1: root: want a string in quotes, not 5"},
		"text for a number": {"count = \"5\"", `f:1: count: want a whole number, not the string "5"`},
		"text for a float":  {"ratio = \"5\"", `f:1: ratio: want a number, not the string "5"`},
		"too large":         {"count = 128", "f:1: count: 128 is out of range"},
		"negative":          {"size = -1", "f:1: size: -1 is out of range"},
		"not a bool":        {"inline = 1", "f:1: inline: want true or false, not 1"},
		"number for a duration": {"handlers.runc.wait = 5",
			`f:1: handlers.runc.wait: want a duration such as "90s" or "2m", not 5`},
		"bad duration":           {"handlers.runc.wait = \"5\"", `want a duration such as "90s" or "2m", not "5"`},
		"negative duration":      {"handlers.runc.wait = \"-5s\"", `"-5s" is negative`},
		"text for an array":      {"log.tags = \"x\"", `f:1: log.tags: want an array such as ["a", "b"], not the string "x"`},
		"wrong element":          {"log.tags = [\"x\", 2]", "f:1: log.tags: element 2: want a string in quotes, not 2"},
		"date":                   {"root = 2026-01-01", "f:1: root: want a string in quotes, not a date or time"},
		"syntax":                 {"root = \"/a\"\n[log", "f:2:"},
		"key twice":              {"root = \"a\"\nroot = \"b\"", "f:"},
		"a line break in a name": {"\"a\\nb\" = 1", `f:1: unknown key "\"a\\nb\""`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := defaults()
			wrong, err := New(&cfg).Merge("f", []byte(c.doc))
			err = errors.Join(append(wrong, err)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestAllMistakesAreReportedUpToALimit(t *testing.T) {
	cfg := defaults()
	wrong, err := New(&cfg).Merge("f", []byte("rot = 1\nlog.x = 2\ncount = \"a\"\nroot = \"/a\""))
	if err != nil || len(wrong) != 3 || cfg.Root != "/a" {
		t.Fatalf("Merge = %v, %v, root %q, want 3 wrong keys and the other one set", wrong, err, cfg.Root)
	}
	for i, want := range []string{"f:1:", "f:2:", "f:3:"} {
		if !strings.HasPrefix(wrong[i].Error(), want) {
			t.Errorf("error %d = %v, want it about %s, in the order of the file", i, wrong[i], want)
		}
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "k%d = 1\n", i)
	}
	if wrong, err := New(&cfg).Merge("f", []byte(many.String())); err != nil || len(wrong) != maxErrors {
		t.Errorf("Merge of 1000 wrong keys = %v, %v, want %d of them", wrong, err, maxErrors)
	}
}

func TestMergeNameIsNotAFormat(t *testing.T) {
	cfg := defaults()
	wrong, err := New(&cfg).Merge("100%d.toml", []byte("x = 1"))
	if err != nil || len(wrong) != 1 || !strings.HasPrefix(wrong[0].Error(), "100%d.toml:1: ") {
		t.Errorf("Merge = %v, %v, want one wrong key of 100%%d.toml:1", wrong, err)
	}
}

func TestOrigins(t *testing.T) {
	_, s := merged(t, "root = \"/a\"\n[log]\nlevel = \"x\"",
		"[log]\n\nlevel = \"y\"\n[handlers.kata]\npath = \"/k\"\n[env]\n\"a.b\" = \"c\"")
	if err := s.Assign("flag --count", "count", "7"); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"root": "f1:1", "log.level": "f2:3", "log.tags": Default, "handlers.kata.path": "f2:5",
		"handlers.runc.path": Default, `env."a.b"`: "f2:7", "count": "flag --count",
	} {
		if got := s.Origin(key); got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}

func TestAssign(t *testing.T) {
	cases := map[string]struct {
		key, value string
		want       func(*config)
	}{
		"text as it is":      {"root", "/a b", func(c *config) { c.Root = "/a b" }},
		"text with escapes":  {"root", `/a"b\c`, func(c *config) { c.Root = `/a"b\c` }},
		"empty text":         {"root", "", func(c *config) { c.Root = "" }},
		"text in quotes":     {"root", `"/a\tb"`, func(c *config) { c.Root = "/a\tb" }},
		"text like a number": {"log.level", "5", func(c *config) { c.Log.Level = "5" }},
		"number":             {"count", "5", func(c *config) { c.Count = 5 }},
		"bool":               {"inline", "true", func(c *config) { c.Inline = true }},
		"array":              {"log.tags", `["x"]`, func(c *config) { c.Log.Tags = []string{"x"} }},
		"duration": {"handlers.runc.wait", "90s",
			func(c *config) { c.Handlers["runc"] = handler{"runc", 90 * time.Second} }},
		"new entry":   {"handlers.kata.path", "/k", func(c *config) { c.Handlers["kata"] = handler{Path: "/k"} }},
		"quoted name": {`env."a.b"`, "x", func(c *config) { c.Env = map[string]string{"a.b": "x"} }},
		"line break":  {"root", "a\nb", func(c *config) { c.Root = "a\nb" }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := defaults()
			if err := New(&got).Assign("--set", c.key, c.value); err != nil {
				t.Fatal(err)
			}
			want := defaults()
			c.want(&want)
			if d := cmp.Diff(want, got, cmp.AllowUnexported(config{})); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestAssignMistakes(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"rot", "1", `--set: unknown key "rot", the nearest known key is "root"`},
		{"", "x", `--set: "" is not a key`},
		{"#", "x", `--set: "#" is not a key`},
		{"a b", "x", `--set: "a b" is not a key`},
		{"a\nroot", "x", "is not a key"},
		{"count", "x", `"x" is not a TOML value`},
		{"count", "5\nroot = \"/evil\"", "more than one line"},
		{"log.tags", "x", "is not a TOML value"},
		{"log", "x", "is not a TOML value"},
		{"root", "\xff", "not UTF-8"},
		{"root.x", "1", "root: want a string in quotes, not a table"},
	} {
		cfg := defaults()
		err := New(&cfg).Assign("--set", c.key, c.value)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q=%q: got %v, want %s", c.key, c.value, err, c.want)
		}
		if cfg.Root != "/var" {
			t.Errorf("%q=%q changed root to %q", c.key, c.value, cfg.Root)
		}
	}
}

func TestDumpGolden(t *testing.T) {
	_, s := merged(t, "root = \"/a\"\n[handlers.\"k.1\"]\nwait = \"1h\"",
		"[env]\nA = \"\\u0001\\\\ \\\"x\\\"\"\n[log]\ntags = []")
	golden(t, "testdata/dump.toml", s.Dump)
}

func TestDocumentGolden(t *testing.T) {
	cfg := defaults()
	golden(t, "testdata/document.toml", New(&cfg).Document)
}

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what write prints with a file.
func golden(t *testing.T, path string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Errorf("-want +got (rewrite with -update):\n%s", d)
	}
}

func TestDumpIsTheConfig(t *testing.T) {
	want, s := merged(t, "root = \"/a\\u007f\\tb\"\nratio = 1e300\n"+
		"[handlers.\"k.1\"]\nwait = \"90m\"\n[handlers.empty]\n[env]\n\"\" = \"x\"")
	var out bytes.Buffer
	if err := s.Dump(&out); err != nil {
		t.Fatal(err)
	}
	got, _ := merged(t, out.String())
	if d := cmp.Diff(want, got, cmp.AllowUnexported(config{})); d != "" {
		t.Errorf("-want +got:\n%s\n%s", d, out.String())
	}
}

func TestValues(t *testing.T) {
	_, s := merged(t, "root = \"/a\"\n[env]\n\"a.b\" = \"c\"")
	want := map[string]any{
		"root": "/a", "count": int8(1), "size": uint(0), "ratio": 0.5, "inline": false,
		"log.level": "info", "log.tags": []string{"a", "b"}, "handlers.runc.path": "runc", "handlers.runc.wait": "1m",
		`env."a.b"`: "c",
	}
	if d := cmp.Diff(want, s.Values()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestDumpReportsAWriteError(t *testing.T) {
	cfg := defaults()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := New(&cfg).Dump(full); err == nil {
		t.Error("a full disk went unnoticed")
	}
}
