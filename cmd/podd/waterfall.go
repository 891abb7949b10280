package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podd-project/podd/sandbox/operation"
)

// waterfallWidth is the number of columns of a bar.
const waterfallWidth = 40

// printWaterfall prints the duration of each stage, and a bar with its place in the operation.
func printWaterfall(w io.Writer, operations []operation.Operation) {
	for _, o := range operations {
		fmt.Fprintf(w, "    %s\t%s\t%s\t%s\n", o.Verb, time.Duration(o.Took), o.Began.UTC().Format(time.RFC3339), o.Error)
		for _, s := range o.Stages {
			fmt.Fprintf(w, "      %s\t%s\t|%s|\t\n", s.Name, time.Duration(s.Took), bar(s, o.Took))
		}
	}
}

// bar represents the operation, with # where the stage was.
func bar(s operation.Stage, whole operation.Duration) string {
	if whole <= 0 {
		return strings.Repeat(" ", waterfallWidth)
	}
	from := min(int(s.After*waterfallWidth/whole), waterfallWidth-1)
	to := min(max(int((s.After+s.Took)*waterfallWidth/whole), from+1), waterfallWidth)
	return strings.Repeat(" ", from) + strings.Repeat("#", to-from) + strings.Repeat(" ", waterfallWidth-to)
}
