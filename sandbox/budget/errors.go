package budget

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// RefusedError says which budget did not allow a request. It is an errdefs.ErrResourceExhausted.
type RefusedError struct {
	Budget, Unit string
	// Owner is whose share is used up, or the object that is too large; "" if the whole budget is used up.
	Owner string
	// Limit is the maximum, Want the amount that was asked for.
	Limit, Want int64
}

func (e *RefusedError) Error() string {
	if e.Owner == "" {
		return fmt.Sprintf("podd's budget %q is used up (%d %s in all): retry later, see `podd status`",
			e.Budget, e.Limit, e.Unit)
	}
	return fmt.Sprintf("podd's budget %q allows %d %s for %s: see `podd status`", e.Budget, e.Limit, e.Unit, e.Owner)
}

// Unwrap returns errdefs.ErrResourceExhausted.
func (e *RefusedError) Unwrap() error { return errdefs.ErrResourceExhausted }
