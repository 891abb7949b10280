package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/podd-project/podd/test/sample"
)

func parsed(t *testing.T, junit string) report {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.xml")
	if err := os.WriteFile(path, []byte(junit), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := readReport(path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

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
		got, err := parsed(t, fmt.Sprintf(junit, "a spec", tt.reason)).skippedByReason(tt.handler)
		if !maps.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%s with %s = %v, %v, want %v", tt.reason, tt.handler, got, err, tt.want)
		}
	}
	path := filepath.Join(t.TempDir(), "invalid.xml")
	if err := os.WriteFile(path, []byte("no report"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readReport(path); err == nil {
		t.Error("readReport of invalid XML = nil, want an error")
	}
}

func TestSkipsFitSpecs(t *testing.T) {
	r := parsed(t, fmt.Sprintf(junit, "a spec", "why"))
	if err := r.checkSkips("not chosen # because\na spec # because"); err != nil {
		t.Error(err)
	}
	if err := r.checkSkips("no such spec # because"); err == nil {
		t.Error("checkSkips with a name that matches no spec = nil, want an error")
	}
}

// TestSampled: the samples of the commits cover the selected specs and nothing else.
func TestSampled(t *testing.T) {
	var list strings.Builder
	list.WriteString("<testsuites><testsuite>")
	list.WriteString(`<testcase name="[ReportAfterSuite] end"/>`)
	list.WriteString(`<testcase name="[It] other"><skipped message="skipped"/></testcase>`)
	want := []string{}
	for i := range 10 {
		fmt.Fprintf(&list, `<testcase name="[It] spec %d [Serial]"/>`, i)
		want = append(want, fmt.Sprint("spec ", i))
	}
	all := parsed(t, list.String()+"</testsuite></testsuites>")
	seen := map[string]bool{}
	for i := range 100 {
		t.Setenv(sample.Variable, fmt.Sprint("commit", i))
		names := sampled(all, 4, "vm")
		if len(names) < 2 || len(names) > 3 {
			t.Fatalf("sample of commit %d = %q, want two or three of ten", i, names)
		}
		for _, name := range names {
			seen[name] = true
		}
	}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
		t.Errorf("100 commits take %q, want %q", got, want)
	}
}
