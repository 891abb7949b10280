package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/podd-project/podd/test/sample"
)

// report is the part of ginkgo's JUnit report that is read here.
type report struct {
	Cases []testCase `xml:"testsuite>testcase"`
}

type testCase struct {
	Name    string `xml:"name,attr"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
}

func readReport(path string) (r report, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := xml.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("read report: %w", err)
	}
	return r, nil
}

// bySpec returns the reason for which critest skipped a spec by itself. Specs that were not selected have none.
func (c testCase) bySpec() (reason string, given bool) {
	if c.Skipped == nil {
		return "", false
	}
	return strings.CutPrefix(c.Skipped.Message, "skipped - ")
}

// selected are the names of the specs that focus and skip selected. Other cases are the suite's set-up and its end.
// Ginkgo marks specs that run alone with a word that is not part of their names.
func (r report) selected() (names []string) {
	for _, c := range r.Cases {
		name, spec := strings.CutPrefix(c.Name, "[It] ")
		if _, given := c.bySpec(); spec && (c.Skipped == nil || given) {
			names = append(names, strings.TrimSuffix(name, " [Serial]"))
		}
	}
	return names
}

// sampled are the names of every n-th spec that was selected, which ones depends on the handler and sample.Variable.
func sampled(all report, n int, handler string) []string {
	selected := all.selected()
	slices.Sort(selected)
	return sample.Of(n, selected, handler)
}

// printSkipped prints the reasons for which critest skipped specs, and how many. A reason that is not accepted for the
// handler is an error.
func (r report) printSkipped(handler string) error {
	count, err := r.skippedByReason(handler)
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		fmt.Printf("%d specs skipped: %s\n", count[reason], reason)
	}
	return err
}

func (r report) skippedByReason(handler string) (map[string]int, error) {
	count := map[string]int{}
	for _, c := range r.Cases {
		reason, given := c.bySpec()
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
func (r report) checkSkips(file string) error {
	var errs []error
	for _, name := range skipNames(file) {
		if !slices.ContainsFunc(r.Cases, func(c testCase) bool { return strings.Contains(c.Name, name) }) {
			errs = append(errs, fmt.Errorf("critest has no spec %q, which a skip file names", name))
		}
	}
	return errors.Join(errs...)
}
