// Package preflight checks in advance whether a machine can run podd's pods: directories, filesystems and the kernel.
// `podd config check --node` prints the findings.
//
// It changes nothing on the machine and knows neither the configuration's format nor the packages of podd.
package preflight

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Result is the outcome of one check.
type Result string

// Results. A note is about something that another program usually provides later, or that only some pods need; a
// problem keeps podd, or some pods that it was configured for, from running.
const (
	OK      Result = "ok"
	Note    Result = "note"
	Problem Result = "problem"
)

// Finding is the outcome of one check of What, in words.
type Finding struct {
	Result Result `json:"result"`
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// Report is a list of findings.
type Report []Finding

// Add appends a finding. Format and args are those of fmt.Sprintf.
func (r *Report) Add(result Result, what, format string, args ...any) {
	*r = append(*r, Finding{Result: result, What: what, Detail: fmt.Sprintf(format, args...)})
}

// Problems returns the number of problems.
func (r Report) Problems() (n int) {
	for _, f := range r {
		if f.Result == Problem {
			n++
		}
	}
	return n
}

// Print writes one line for each finding.
func (r Report) Print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, f := range r {
		fmt.Fprintf(out, "%s\t%s\t%s\n", f.Result, f.What, f.Detail)
	}
	return out.Flush()
}
