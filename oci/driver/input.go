package driver

import (
	"errors"
	"io"
)

// CopyInput copies a client's input to a command until it ends, fails, or the command exits, and returns whether it has
// ended. Only then may the caller end the command's input: after a failure the command must not take half an upload for
// all of it, and waits until the session ends.
func CopyInput(to io.Writer, from io.Reader) (ended bool) {
	input := &failureReader{from: from}
	_, _ = io.Copy(WriteOnly{to}, input)
	return !input.failed
}

// failureReader records whether a reader has failed instead of reaching its end.
type failureReader struct {
	from   io.Reader
	failed bool
}

func (r *failureReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.failed = err != nil && !errors.Is(err, io.EOF)
	return n, err
}
