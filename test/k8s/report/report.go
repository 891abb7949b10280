// Package report reads the results of Kubernetes' own tests from ginkgo's reports, and writes them as text, one line
// for each spec.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Spec is a spec that was run.
type Spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	// State is ginkgo's: passed, failed, skipped (by the spec itself), timedout, interrupted, panicked.
	State   string
	RunTime time.Duration
	Failure struct{ Message string }
}

// Name is the name of the spec with those of all its contexts.
func (s Spec) Name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// Read returns the specs of a JSON report that were run, in the order of their names. It fails if there are none.
func Read(data []byte) ([]Spec, error) {
	var suites []struct {
		SpecReports                []Spec
		SuiteSucceeded             bool
		SpecialSuiteFailureReasons []string
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("parse the report: %w", err)
	}
	var ran []Spec
	for _, s := range suites {
		for _, sp := range s.SpecReports {
			notRun := sp.State == "skipped" && sp.Failure.Message == "" // not in focus
			setup := len(sp.ContainerHierarchyTexts) == 0 && sp.State == "passed"
			if !notRun && !setup {
				ran = append(ran, sp)
			}
		}
	}
	if len(ran) == 0 {
		return nil, fmt.Errorf("no spec ran: %v", suites)
	}
	slices.SortFunc(ran, func(a, b Spec) int { return strings.Compare(a.Name(), b.Name()) })
	return ran, nil
}

// Write writes the results to a file, to standard output if its name is empty, and prints how many there are of each
// state.
func Write(specs []Spec, file string) error {
	var b strings.Builder
	counts := map[string]int{}
	for _, s := range specs {
		counts[s.State]++
		b.WriteString(s.text())
	}
	fmt.Fprintf(&b, "%d specs: %v\n", len(specs), counts)
	if file == "" {
		fmt.Print(b.String())
		return nil
	}
	fmt.Printf("%d specs: %v; the report is in %s\n", len(specs), counts, file)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// maxMessage is how many lines of a message are kept: some print a whole pod.
const maxMessage = 20

// text returns the line of a spec, and the start of the message of one that did not pass.
func (s Spec) text() string {
	line := fmt.Sprintf("%-8s %6.1fs  %s\n", s.State, s.RunTime.Seconds(), s.Name())
	if s.State != "passed" {
		lines := strings.SplitN(strings.TrimSpace(s.Failure.Message), "\n", maxMessage+1)
		line += "\t" + strings.Join(lines[:min(len(lines), maxMessage)], "\n\t") + "\n"
	}
	return line
}
