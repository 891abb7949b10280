package main

import (
	"encoding/xml"
	"errors"
	"fmt"
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

// report is the part of ginkgo's JUnit report that is read here.
type report struct {
	Cases []struct {
		Name    string `xml:"name,attr"`
		Skipped *struct {
			Message string `xml:"message,attr"`
		} `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// skippedByReason counts the specs that critest itself skipped, by reason. A reason that is not accepted for the
// handler is an error. Specs that were not selected have no reason.
func skippedByReason(junit []byte, handler string) (map[string]int, error) {
	var r report
	if err := xml.Unmarshal(junit, &r); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	count := map[string]int{}
	for _, c := range r.Cases {
		if c.Skipped == nil {
			continue
		}
		reason, given := strings.CutPrefix(c.Skipped.Message, "skipped - ")
		if !given {
			continue
		}
		if !known(reason, handler) {
			return nil, fmt.Errorf("critest skipped %s: %s", c.Name, reason)
		}
		count[reason]++
	}
	return count, nil
}

// checkSkips returns an error for each name in a skip file that matches no spec of critest.
func checkSkips(junit []byte, file string) error {
	var r report
	if err := xml.Unmarshal(junit, &r); err != nil {
		return fmt.Errorf("read report: %w", err)
	}
	var errs []error
	for _, name := range skipNames(file) {
		fits := false
		for _, c := range r.Cases {
			fits = fits || strings.Contains(c.Name, name)
		}
		if !fits {
			errs = append(errs, fmt.Errorf("critest has no spec %q, which a skip file names", name))
		}
	}
	return errors.Join(errs...)
}

func known(reason, handler string) bool {
	for _, r := range reasons {
		if strings.Contains(reason, r.text) {
			return r.holds(handler)
		}
	}
	return false
}
