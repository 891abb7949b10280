package subprocess

import (
	"bytes"
	"errors"
	"io"
	"strings"
)

// ErrTooMuchOutput is the error of a write to a strict Head that is full.
var ErrTooMuchOutput = errors.New("too much output")

// Head is a writer that keeps the first bytes written to it and drops the rest.
type Head struct {
	buf       bytes.Buffer // not embedded: its ReadFrom has no limit
	limit     int64
	strict    bool
	truncated bool
}

// pipePiece is how much of a pipe is read at once, in bytes. Most programs print less.
const pipePiece = 4 << 10

// NewHead returns a writer that keeps limit bytes.
func NewHead(limit int64) *Head { return &Head{limit: limit} }

// NewStrictHead returns a writer that keeps limit bytes, and fails the write of more. The program that writes them gets
// a broken pipe.
func NewStrictHead(limit int64) *Head { return &Head{limit: limit, strict: true} }

func (h *Head) Write(p []byte) (int, error) {
	room := max(h.limit-int64(h.buf.Len()), 0)
	if int64(len(p)) <= room {
		return h.buf.Write(p)
	}
	h.buf.Write(p[:room])
	h.truncated = true
	if h.strict {
		return int(room), ErrTooMuchOutput
	}
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom. Without it os/exec would read each pipe with a buffer of 32 KiB, most of the
// memory that a short program takes.
func (h *Head) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{h}, r, make([]byte, pipePiece))
}

// Len is the number of bytes kept.
func (h *Head) Len() int { return h.buf.Len() }

// Bytes returns the bytes kept.
func (h *Head) Bytes() []byte { return h.buf.Bytes() }

// String returns the bytes kept as valid UTF-8.
func (h *Head) String() string { return strings.ToValidUTF8(h.buf.String(), "?") }

// Truncated reports whether more was written than is kept.
func (h *Head) Truncated() bool { return h.truncated }
