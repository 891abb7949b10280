package sandbox

import (
	"context"
	"fmt"

	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
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

// stageSync is the wait until a new record is synced.
const stageSync = "sync"

// awaitSync waits, when a creation ends, until the sync of its record has ended, if one has begun: after a failure or a
// stop, the undo removes the files that are being synced.
func awaitSync(ctx context.Context, saved *record.Sync) {
	if saved == nil {
		return
	}
	operation.SetStage(ctx, stageSync)
	_ = saved.Wait()
}
