package sandbox

import (
	"context"
	"fmt"

	"github.com/podd-project/podd/sandbox/operation"
)

// step is one named part of a creation. do is nil if it is not needed.
type step struct {
	name string
	do   func() error
}

// runSteps does the steps in order, up to the first that fails or the end of ctx.
func runSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if s.do == nil {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("before %s: %w", s.name, err)
		}
		operation.SetStage(ctx, s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return context.Cause(ctx)
}
