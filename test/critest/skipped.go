package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"strings"
)

// reasons are those for which critest may leave out a spec by itself, and where they hold. All others would make a run
// pass that has not tested what it should.
var reasons = []struct {
	text  string
	holds func(handler string) bool
}{
	{"AppArmor is disabled on this host", func(string) bool { return !appArmor() }},
	// crun before 1.9 cannot say that it has them; Debian 12 has 1.8.1. gVisor maps no ids.
	{"no runtime handler found which supports user namespaces", func(handler string) bool {
		return handler == "crun" ||
			strings.HasPrefix(handler, "gvisor")
	}},
	// runsc has no such mount option.
	{"runtime does not implement recursive readonly mounts",
		func(handler string) bool { return strings.HasPrefix(handler, "gvisor") }},
}

func appArmor() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}

// report is what is of interest in ginkgo's JUnit report.
type report struct {
	Cases []struct {
		Name    string `xml:"name,attr"`
		Skipped *struct {
			Message string `xml:"message,attr"`
		} `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// leftOut counts the specs that critest itself has left out, by reason. A reason that does not hold for the handler is
// an error. Specs that were not chosen have none.
func leftOut(junit []byte, handler string) (map[string]int, error) {
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
			return nil, fmt.Errorf("left out %s: %s", c.Name, reason)
		}
		count[reason]++
	}
	return count, nil
}

// checkSkips wants every name in a skip file to fit a spec: else it is a mistake, or critest has it no more.
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
			errs = append(errs, fmt.Errorf("critest has no spec %q, which is to be left out", name))
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
