package main

import (
	"fmt"
	"maps"
	"testing"
)

// A report as critest writes it, shortened.
const junit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="4" disabled="0" errors="0" failures="0" time="2.6">
  <testsuite name="CRI validation" package="/x" tests="4" skipped="3">
    <properties><property name="SuiteSucceeded" value="true"></property></properties>
    <testcase name="[It] runs" classname="CRI validation" status="passed" time="0.1"></testcase>
    <testcase name="[It] not chosen" classname="CRI validation" status="skipped" time="0">
<skipped message="skipped"></skipped></testcase>
    <testcase name="[It] %[1]s" classname="CRI validation" status="skipped" time="0">
<skipped message="skipped - %[2]s"></skipped></testcase>
  </testsuite>
</testsuites>`

func TestSkippedByReason(t *testing.T) {
	const userns = "no runtime handler found which supports user namespaces"
	for _, tt := range []struct {
		reason, handler string
		want            map[string]int
	}{
		{userns, "crun", map[string]int{userns: 1}},
		{userns, "runc", nil},
		{userns, "gvisor-shim", map[string]int{userns: 1}},
		{"the moon is full", "crun", nil},
	} {
		got, err := skippedByReason(fmt.Appendf(nil, junit, "a spec", tt.reason), tt.handler)
		if !maps.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%s with %s = %v, %v, want %v", tt.reason, tt.handler, got, err, tt.want)
		}
	}
	if _, err := skippedByReason([]byte("no report"), "runc"); err == nil {
		t.Error("skippedByReason of invalid XML = nil, want an error")
	}
}

func TestSkipsFitSpecs(t *testing.T) {
	data := fmt.Appendf(nil, junit, "a spec", "why")
	if err := checkSkips(data, "not chosen # because\na spec # because"); err != nil {
		t.Error(err)
	}
	if err := checkSkips(data, "no such spec # because"); err == nil {
		t.Error("checkSkips with a name that matches no spec = nil, want an error")
	}
}
