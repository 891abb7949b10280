package driver

import (
	"bytes"
	"io"

	"github.com/podd-project/podd/cmd/budget"
)

// Capped is a writer that keeps the first bytes written to it and drops the rest.
type Capped struct {
	buf   bytes.Buffer // not embedded: its ReadFrom has no limit
	limit int64

	// memory is the budget for bytes beyond paid; nil if they need none.
	memory *budget.Grant
	paid   int64
	short  bool
}

// memoryPiece is how much is added to a grant at once, pipePiece how much of a program's output is read at once, in
// bytes. Most runtimes print less.
const (
	memoryPiece = 64 << 10
	pipePiece   = 4 << 10
)

// NewCapped returns a writer that keeps limit bytes.
func NewCapped(limit int64) *Capped { return &Capped{limit: limit} }

// newPaid returns a writer that keeps limit bytes, or as many as memory allows.
func newPaid(limit int64, memory *budget.Grant) *Capped {
	return &Capped{limit: limit, memory: memory, paid: budget.ExecOutputFree}
}

func (c *Capped) Write(p []byte) (int, error) {
	have := int64(c.buf.Len())
	keep := min(int64(len(p)), max(c.limit-have, 0))
	if c.memory != nil {
		c.pay(have + keep)
		keep = min(keep, c.paid-have)
	}
	c.buf.Write(p[:keep])
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom. Without it os/exec would read each pipe with a buffer of 32 KiB, most of the
// memory that a short command takes.
func (c *Capped) ReadFrom(r io.Reader) (int64, error) {
	return io.CopyBuffer(struct{ io.Writer }{c}, r, make([]byte, pipePiece))
}

// pay makes paid at least want, unless the budget is used up. It is not asked again then: the output must be a prefix.
func (c *Capped) pay(want int64) {
	for c.paid < want && !c.short {
		if err := c.memory.Grow(memoryPiece); err != nil {
			c.short = true
			return
		}
		c.paid += memoryPiece
	}
}

// Bytes are the bytes kept.
func (c *Capped) Bytes() []byte { return c.buf.Bytes() }
