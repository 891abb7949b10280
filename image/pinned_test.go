package image

import "testing"

func TestGlobMatch(t *testing.T) {
	for _, c := range []struct {
		glob, s string
		want    bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"a*", "a", true}, {"*b", "ab", true}, {"*b", "abc", false},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "acd", false}, {"a*a", "a", false}, {"*a*", "xay", true},
		{"h/*/x:*", "h/a/b/x:1", true}, {"h/*/x:*", "h/x:1", false}, {"*ab*ab*", "ab", false}, {"*ab*ab*", "abab", true},
		{"a**b", "ab", true}, {"a?", "ab", false}, {"", "", true}, {"", "x", false}, {"[a]", "a", false},
	} {
		if got := globMatch(c.glob, c.s); got != c.want {
			t.Errorf("%q on %q: %v, want %v", c.glob, c.s, got, c.want)
		}
	}
}
