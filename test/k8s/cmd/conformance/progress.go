package main

import (
	"bytes"
	"fmt"
)

// progress prints, of all that the tests write, which specs have failed and how many were run.
type progress struct {
	rest []byte
	// named is true when the next line is the name of a spec that has failed.
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
