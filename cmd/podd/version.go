package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// version and commit are set by the linker (-X main.version=... -X main.commit=...).
var version, commit = "dev", ""

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
