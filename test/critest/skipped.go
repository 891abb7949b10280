package main

import (
	"os"
	"strings"
)

// reasons are the reasons for which critest may skip a spec by itself, and the handlers for which they are accepted.
// With any other reason a run would pass without testing what it should.
var reasons = []struct {
	text  string
	holds func(handler string) bool
}{
	{"AppArmor is disabled on this host", func(string) bool { return !appArmor() }},
	// crun before 1.9 does not report user namespaces; Debian 12 has 1.8.1. gVisor does not map ids. A virtual machine's
	// users are not the node's.
	{"no runtime handler found which supports user namespaces", func(handler string) bool {
		return handler == "crun" || strings.HasPrefix(handler, "gvisor") || strings.HasPrefix(handler, "vm")
	}},
	// runsc has no such mount option.
	{"runtime does not implement recursive readonly mounts",
		func(handler string) bool { return strings.HasPrefix(handler, "gvisor") }},
}

func appArmor() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}

func known(reason, handler string) bool {
	for _, r := range reasons {
		if strings.Contains(reason, r.text) {
			return r.holds(handler)
		}
	}
	return false
}
