package tomlconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeyLines(t *testing.T) {
	cases := map[string]struct {
		doc  string
		want map[string]int
	}{
		"nothing":                  {"", map[string]int{}},
		"comments and blank lines": {"# a\n\nx = 1 # b\r\n\r\ny = 2", map[string]int{"x": 3, "y": 5}},
		"tables":                   {"[a]\nx = 1\n[a.b]\n\nx = 2", map[string]int{"a": 1, "a.x": 2, "a.b": 3, "a.b.x": 5}},
		"dotted":                   {"\na.b.c = 1\na.b.d = 2", map[string]int{"a": 2, "a.b": 2, "a.b.c": 2, "a.b.d": 3}},
		"inline":                   {"a = {b = 1, c = {d = 2}}", map[string]int{"a": 1, "a.b": 1, "a.c": 1, "a.c.d": 1}},
		"quoted":                   {"\"a.b\".'c d' = 1", map[string]int{`"a.b"`: 1, `"a.b"."c d"`: 1}},
		"values of many lines":     {"a = [\n1,\n2]\nb = \"\"\"\nx\ny\"\"\"\nc = 1", map[string]int{"a": 1, "b": 4, "c": 7}},
		"array of tables":          {"[[a]]\nx = 1\n[[a]]\nx = 2", map[string]int{"a": 1, "a.x": 2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, keyLines([]byte(c.doc))); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"", "abc", 3}, {"abc", "abd", 1}, {"abc", "ac", 1},
		{"abc", "abxc", 1},
		{"levle", "level", 2}, {"ROOT", "root", 0}, {"kitten", "sitting", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.a, c.b, got, c.want)
		}
		if there, back := distance(c.a, c.b), distance(c.b, c.a); there != back {
			t.Errorf("%q, %q: %d there, %d back", c.a, c.b, there, back)
		}
	}
}

func TestKeyString(t *testing.T) {
	for want, path := range map[string][]string{
		"a.b-c.D_1":        {"a", "b-c", "D_1"},
		`"".x`:             {"", "x"},
		`"a.b"."c\"d"`:     {"a.b", `c"d`},
		`"é"."\u0001\n\\"`: {"é", "\x01\n\\"},
	} {
		if got := keyString(path); got != want {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
}
