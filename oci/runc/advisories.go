package runc

import "strings"

// advisory is a way out of the container that a runtime had, and where it was closed.
type advisory struct {
	name, prefix string
	// fixed are the first versions without it, oldest first: of each minor version that was mended, and the first
	// that never had it.
	fixed []string
}

// knownAdvisories are those that a container's image, mounts or command can use. crun's are not among them: it was
// not affected by the same ones, and its own (CVE-2025-24965) is about krun, which podd has no handler for.
func knownAdvisories() []advisory {
	return []advisory{
		{"CVE-2019-5736", "runc version ", []string{"1.0.0"}},
		{"CVE-2021-30465", "runc version ", []string{"1.0.0"}},
		{"CVE-2024-21626", "runc version ", []string{"1.1.12"}},
		{"CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", "runc version ", []string{"1.2.8", "1.3.3", "1.4.0"}},
	}
}

// advisories names the holes that a runtime of this version has, as far as the version tells: a distribution may have
// closed them without changing it. So the handler is used all the same, and its operator told.
func advisories(version string) []string {
	var out []string
	for _, a := range knownAdvisories() {
		if atLeast(version, a.prefix, "0") && !a.isFixed(version) {
			out = append(out, a.name)
		}
	}
	return out
}

// closed tells whether a version is a mended one: at least the last, or at least that of its own minor version.
func (a advisory) isFixed(version string) bool {
	if atLeast(version, a.prefix, a.fixed[len(a.fixed)-1]) {
		return true
	}
	have := numbers(strings.TrimPrefix(version, a.prefix))
	for _, fixed := range a.fixed {
		n := numbers(fixed)
		if have[0] == n[0] && have[1] == n[1] && have[2] >= n[2] {
			return true
		}
	}
	return false
}
