package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// criModule is the module whose version is the version of the CRI API that podd was built with.
const criModule = "k8s.io/cri-api"

func printVersion(w io.Writer) error {
	_, err := fmt.Fprintf(w, "podd     %s\ncommit   %s\ngo       %s %s/%s\ncri-api  %s\n",
		version, cmp.Or(commit, buildSetting("vcs.revision"), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH,
		moduleVersion(criModule))
	return err
}

// buildSetting reads what the Go command noted in the binary.
func buildSetting(key string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// moduleVersion returns the version of a module that is linked in.
func moduleVersion(path string) string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return "unknown"
}

// semverPattern takes a version apart: the numbers that must be there, and what may follow.
var semverPattern = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(.*)$`)

// semver makes the build's version one that the kubelet can parse: of a build without a tag it is 0.0.0 with the
// build's name as pre-release.
func semver(v string) string {
	if m := semverPattern.FindStringSubmatch(v); m != nil {
		return m[1] + strings.TrimRight(clean(m[2]), "-.+")
	}
	return strings.TrimRight("0.0.0-"+clean(v), "-.+")
}

// clean keeps what may stand in a pre-release or build name.
func clean(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-.+", c) {
			return c
		}
		return '-'
	}, s)
}
