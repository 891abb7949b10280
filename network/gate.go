package network

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// gate excludes attachments and garbage collection from each other: CNI GC removes every pod that is not on its list,
// including one that was attached after the list was made. Attachments have priority: a new one cancels a collection,
// which can be repeated, and no collection starts while an attachment is in progress.
type gate struct {
	mu       sync.Mutex // guards the fields below
	attaches int
	stopGC   context.CancelCauseFunc // non-nil while a collection runs
	gcDone   chan struct{}
}

var errAttachFirst = errors.New("a pod is being attached")

// attach waits until no collection runs. The caller must call leave at the end of the attachment.
func (g *gate) attach(ctx context.Context) (leave func(), err error) {
	for {
		running := g.tryAttach()
		if running == nil {
			return func() {
				g.mu.Lock()
				defer g.mu.Unlock()
				g.attaches--
			}, nil
		}
		select {
		case <-running:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryAttach starts an attachment, or cancels the collection in progress and returns a channel that is closed at its
// end.
func (g *gate) tryAttach() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopGC == nil {
		g.attaches++
		return nil
	}
	g.stopGC(fmt.Errorf("%w: %w", errdefs.ErrUnavailable, errAttachFirst))
	return g.gcDone
}

// collect starts a collection, which must stop when the returned context ends, and call leave. It fails with
// errdefs.ErrUnavailable while pods are being attached or another collection runs.
func (g *gate) collect(ctx context.Context) (_ context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.attaches > 0 {
		return nil, nil, fmt.Errorf("%w: %w", errdefs.ErrUnavailable, errAttachFirst)
	}
	if g.stopGC != nil {
		return nil, nil, fmt.Errorf("%w: another collection is running", errdefs.ErrUnavailable)
	}
	ctx, stop := context.WithCancelCause(ctx)
	g.stopGC, g.gcDone = stop, make(chan struct{})
	return ctx, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		stop(nil)
		close(g.gcDone)
		g.stopGC, g.gcDone = nil, nil
	}, nil
}
