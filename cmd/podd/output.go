package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// outputFormat is the format of a command's output.
type outputFormat string

const (
	outputText outputFormat = "text"
	outputJSON outputFormat = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command, format *outputFormat) {
	cmd.Flags().StringVarP((*string)(format), "output", "o", string(outputText), "output `format`: text or json")
}

func (f outputFormat) validate() error {
	if f != outputText && f != outputJSON {
		return configError{fmt.Errorf("flag --output: %q is neither text nor json", string(f))}
	}
	return nil
}

func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
