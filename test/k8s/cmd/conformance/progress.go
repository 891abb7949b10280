package main

import (
	"bytes"
	"fmt"
)

// progress is a writer for the tests' output that prints the names of failed specs and the number of specs run.
type progress struct {
	rest []byte
	// named is set if the next line is the name of a failed spec.
	named bool
}

func (p *progress) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, after, ok := bytes.Cut(p.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		p.rest = after
		if p.named || bytes.HasPrefix(line, []byte("Ran ")) {
			fmt.Printf("%s\n", line)
		}
		if p.named = bytes.HasPrefix(line, []byte("• [FAILED] [")); p.named {
			fmt.Print("failed: ")
		}
	}
}
