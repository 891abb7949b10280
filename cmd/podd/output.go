package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// outputFormat is how a command prints: outputText for people, outputJSON for programs.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *outputFormat) {
	cmd.Flags().StringVarP((*string)(format), "output", "o", string(outputText), "text or json")
}

func (f outputFormat) validate() error {
	if f != outputText && f != outputJSON {
		return configError{fmt.Errorf("output %q is neither text nor json", string(f))}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
