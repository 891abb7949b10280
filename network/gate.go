package network

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
)

// gate keeps attachments and garbage collection apart: CNI GC removes what is not on its list, so also a pod that was
// attached after the list was made. Attachments have the right of way: one that comes ends a collection, which is
// no loss, and a collection does not begin while one is under way.
type gate struct {
	mu       sync.Mutex // guards what follows
	attaches int
	stopGC   context.CancelCauseFunc // non-nil while a collection runs
	gcDone   chan struct{}
}

var errAttachFirst = errors.New("a pod is being attached")

// attach waits until no collection runs. The returned function ends the attachment.
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

// tryAttach begins an attachment, or stops the collection under way and returns what closes at its end.
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

// collect begins a collection, which must stop at the end of the returned context and call leave. It is
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
