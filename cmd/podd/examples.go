package main

import (
	_ "embed"
	"strings"

	"github.com/spf13/cobra"
)

//go:embed examples.txt
var examples string

// addExamples adds to the help of each command below root the lines that call it.
func addExamples(root *cobra.Command) {
	for line := range strings.Lines(examples) {
		if cmd, _, err := root.Find(strings.Fields(line)[1:]); err == nil {
			cmd.Example = strings.TrimPrefix(cmd.Example+"\n  "+strings.TrimSpace(line), "\n")
		}
	}
}
