package sandbox

import "context"

// slot admits one operation at a time. Unlike a mutex it may be held across I/O, because waiting for it ends with the
// waiter's context.
type slot chan struct{}

func newSlot() slot { return make(slot, 1) }

// acquire waits for the slot or for the end of ctx, whose cause it returns.
func (s slot) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slot) release() { <-s }
