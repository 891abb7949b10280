package runc

import "strings"

// advisory is a way to escape from a container that a runtime had.
type advisory struct {
	name, prefix string
	// fixed are the first versions with the fix, in ascending order: one of each minor version that got a fix, and the
	// first minor version that never had the bug.
	fixed []string
}

// knownAdvisories are those that a container's image, mounts or command can use. crun was not affected by them, and
// its own (CVE-2025-24965) is about krun, for which podd has no handler.
func knownAdvisories() []advisory {
	return []advisory{
		{"CVE-2019-5736", "runc version ", []string{"1.0.0"}},
		{"CVE-2021-30465", "runc version ", []string{"1.0.0"}},
		{"CVE-2024-21626", "runc version ", []string{"1.1.12"}},
		{"CVE-2025-31133, CVE-2025-52565, CVE-2025-52881", "runc version ", []string{"1.2.8", "1.3.3", "1.4.0"}},
	}
}

// advisories returns the advisories for a runtime of this version. A distribution may have fixed them without changing
// the version, so the handler is used, and they are only reported.
func advisories(version string) []string {
	var out []string
	for _, a := range knownAdvisories() {
		if atLeast(version, a.prefix, "0") && !a.isFixed(version) {
			out = append(out, a.name)
		}
	}
	return out
}

// isFixed reports whether a version has the fix: it is at least the last one in fixed, or at least that of its minor
// version.
func (a advisory) isFixed(version string) bool {
	if atLeast(version, a.prefix, a.fixed[len(a.fixed)-1]) {
		return true
	}
	have := versionNumbers(strings.TrimPrefix(version, a.prefix))
	for _, fixed := range a.fixed {
		n := versionNumbers(fixed)
		if have[0] == n[0] && have[1] == n[1] && have[2] >= n[2] {
			return true
		}
	}
	return false
}
