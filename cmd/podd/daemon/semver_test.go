package daemon

import "testing"

func TestSemver(t *testing.T) {
	for in, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3-rc.1+x": "1.2.3-rc.1+x", "v1.2.3-4-gabc-dirty": "1.2.3-4-gabc-dirty",
		"dev": "0.0.0-dev", "4354b7a": "0.0.0-4354b7a", "": "0.0.0", "a b": "0.0.0-a-b", "v1.2": "0.0.0-v1.2",
	} {
		if got := semver(in); got != want {
			t.Errorf("semver(%q) = %q, want %q", in, got, want)
		}
	}
}
