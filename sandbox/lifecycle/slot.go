package lifecycle

import "context"

// Slot admits one operation at a time. Unlike a mutex it may be held across I/O, because waiting for it ends with the
// waiter's context.
type Slot chan struct{}

// NewSlot returns a free slot.
func NewSlot() Slot { return make(Slot, 1) }

// Acquire waits for the slot or for the end of ctx, whose cause it returns. A context that has ended acquires nothing.
func (s Slot) Acquire(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release frees the slot for the next.
func (s Slot) Release() { <-s }
