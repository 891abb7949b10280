package daemon

import (
	"regexp"
	"strings"
)

// semverPattern matches a version: its three numbers and the rest.
var semverPattern = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(.*)$`)

// semver returns the build's version in a form that the kubelet can parse. A build without a tag has version 0.0.0 with
// its name as pre-release.
func semver(v string) string {
	if m := semverPattern.FindStringSubmatch(v); m != nil {
		return m[1] + strings.TrimRight(clean(m[2]), "-.+")
	}
	return strings.TrimRight("0.0.0-"+clean(v), "-.+")
}

// clean replaces characters that a pre-release or build name cannot contain by a hyphen.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-.+", c) {
			return c
		}
		return '-'
	}, s)
}
