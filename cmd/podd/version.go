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

// buildSetting returns a build setting that the Go command recorded in the binary.
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

// moduleVersion returns the version of a linked module.
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
