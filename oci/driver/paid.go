package driver

import (
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/subprocess"
)

// paidHead is a subprocess.Head whose bytes beyond the first are paid from a budget. It keeps less if that is used up.
type paidHead struct {
	head  *subprocess.Head
	limit int64
	// grow admits bytes beyond paid; nil if they need not be admitted.
	grow  func(n int64) error
	paid  int64
	short bool
}

// memoryPiece is how much is added to a grant at once, in bytes.
const memoryPiece = 64 << 10

// newPaid returns a writer that keeps limit bytes, or as many as grow admits.
func newPaid(limit int64, grow func(n int64) error) *paidHead {
	return &paidHead{head: subprocess.NewHead(limit), limit: limit, grow: grow, paid: oci.FreeOutput}
}

func (h *paidHead) Write(p []byte) (int, error) {
	keep := p
	if h.grow != nil {
		have := int64(h.head.Len())
		h.pay(min(have+int64(len(p)), h.limit))
		keep = p[:min(int64(len(p)), h.paid-have)]
	}
	_, err := h.head.Write(keep)
	return len(p), err
}

// pay makes paid at least want, unless the budget is used up. Then it stays so: the output must be a prefix.
func (h *paidHead) pay(want int64) {
	for h.paid < want && !h.short {
		if err := h.grow(memoryPiece); err != nil {
			h.short = true
			return
		}
		h.paid += memoryPiece
	}
}

// Bytes returns the bytes kept.
func (h *paidHead) Bytes() []byte { return h.head.Bytes() }
