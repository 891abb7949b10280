package oci

import "io"

// Size is a terminal's size in characters. The zero value means unknown.
type Size struct{ Width, Height uint16 }

// Streams connect a client to a process. Each may be nil.
type Streams struct {
	// Stdin is read until it ends. A Read may be blocked after the call has returned: the owner of the stream closes
	// it.
	Stdin io.Reader
	// Stdout and Stderr get the output; with a terminal, Stdout gets all of it. A failed write ends the session, not
	// the process.
	Stdout, Stderr io.Writer
	// Resize are the sizes of the client's terminal, the first one as early as possible.
	Resize <-chan Size
}
