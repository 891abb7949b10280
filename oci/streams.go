package oci

import "io"

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// Streams connect a client to a process. Each may be nil.
type Streams struct {
	// Stdin is read until it ends. Its reader outlives the call if it is blocked in Read: who owns the stream
	// closes it when the call has returned.
	Stdin io.Reader
	// Stdout and Stderr get the output, Stdout all of it where there is a terminal. A write that fails ends the
	// session, not the process.
	Stdout, Stderr io.Writer
	// Resize are the sizes of the client's terminal, the first one as soon as possible.
	Resize <-chan Size
}
