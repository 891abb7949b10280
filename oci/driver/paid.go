package driver

import (
	"github.com/podd-project/podd/cmd/budget"
	"github.com/podd-project/podd/oci/subprocess"
)

// paidHead is a subprocess.Head whose bytes beyond the first are paid from a budget. It keeps less if that is used up.
type paidHead struct {
	head  *subprocess.Head
	limit int64
	// memory is the budget for bytes beyond paid; nil if they need none.
	memory *budget.Grant
	paid   int64
	short  bool
}

// memoryPiece is how much is added to a grant at once, in bytes.
const memoryPiece = 64 << 10

// newPaid returns a writer that keeps limit bytes, or as many as memory allows.
func newPaid(limit int64, memory *budget.Grant) *paidHead {
	return &paidHead{head: subprocess.NewHead(limit), limit: limit, memory: memory, paid: budget.ExecOutputFree}
}

func (h *paidHead) Write(p []byte) (int, error) {
	keep := p
	if h.memory != nil {
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
		if err := h.memory.Grow(memoryPiece); err != nil {
			h.short = true
			return
		}
		h.paid += memoryPiece
	}
}

// Bytes returns the bytes kept.
func (h *paidHead) Bytes() []byte { return h.head.Bytes() }
