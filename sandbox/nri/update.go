package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
)

const (
	// updateWait bounds one update of a container, which waits for other operations on it: the next ones wait for it.
	updateWait = 10 * time.Second
	// maxUpdates bounds the updates of containers in one message of a plugin. A message with more is not followed.
	maxUpdates = 4096
	// maxPostponed bounds the updates of one container that wait for the end of its creation.
	maxPostponed = 64
)

// turn is the place of a request in the queue of a plugin's updates: what its answers ask for is made in their order,
// although requests are concurrent.
type turn struct {
	plugin *plugin
	// begin is closed when the updates before have been made, end by the request.
	begin, end chan struct{}
}

// reserve takes the turn of a request whose plugin asks for updates. It is called before the plugin gets its next call.
func (m *merge) reserve(p *plugin, list []*api.ContainerUpdate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(list) == 0 || m.turn != nil || m.ended { // ended: the caller has given up
		return
	}
	t := &turn{plugin: p, begin: make(chan struct{}), end: make(chan struct{})}
	if p.enqueueUpdate(func() { close(t.begin); <-t.end }) {
		m.turn = t
	}
}

// updateInTurn is update for the answers of a request, whose turn ends with it.
func (m *merge) updateInTurn(ctx context.Context, p *Plugins, list []*api.ContainerUpdate) error {
	defer m.endTurn()
	m.mu.Lock()
	t := m.turn
	m.mu.Unlock()
	if t != nil {
		select {
		case <-t.begin:
		case <-t.plugin.closed: // nobody else updates for it
		case <-ctx.Done():
			return fmt.Errorf("wait for earlier updates of containers by NRI plugins: %w", context.Cause(ctx))
		}
	}
	_, err := p.update(ctx, list)
	return err
}

// endTurn gives way to the next updates, also if there were none. It may be called again.
func (m *merge) endTurn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turn != nil && !m.ended {
		close(m.turn.end)
	}
	m.ended = true
}

// update makes the updates of containers that plugins ask for in one message. It returns those that failed, and the
// first error of them; failures that the plugin ignores are neither. What failed is one line of the log.
func (p *Plugins) update(
	ctx context.Context, list []*api.ContainerUpdate,
) (failed []*api.ContainerUpdate, cause error) {
	if len(list) > maxUpdates {
		err := fmt.Errorf("%w: NRI plugins ask for %d updates of containers at once, at most %d are made",
			errdefs.ErrResourceExhausted, len(list), maxUpdates)
		p.log.WithError(err).Warn("failed to update containers for NRI plugins")
		return list, err
	}
	var first error
	number := 0
	for _, u := range list {
		err := p.updateOne(ctx, u)
		if err == nil {
			continue
		}
		if number++; first == nil {
			first = err
		}
		if u.GetIgnoreFailure() {
			continue
		}
		if failed = append(failed, u); cause == nil {
			cause = err
		}
	}
	if first != nil {
		p.log.WithError(first).WithField("failed", number).WithField("updates", len(list)).
			Warn("failed to update containers for NRI plugins")
	}
	return failed, cause
}

// updateOne makes an update, or postpones it if its container is being created.
func (p *Plugins) updateOne(ctx context.Context, u *api.ContainerUpdate) error {
	id := u.GetContainerId()
	r, err := splitUpdate(u)
	if err == nil {
		err = checkFields(u)
	}
	if err == nil {
		var postponed bool
		if postponed, err = p.postpone(id, r); !postponed && err == nil {
			err = p.limit(ctx, id, r)
		}
	}
	if err != nil {
		return fmt.Errorf("update of container %.80q by NRI plugins: %w", id, err)
	}
	return nil
}

// limit sets limits of a container.
func (p *Plugins) limit(ctx context.Context, id string, r Resources) error {
	ctx, cancel := context.WithTimeoutCause(ctx, updateWait,
		fmt.Errorf("%w: the update took longer than %v", context.DeadlineExceeded, updateWait))
	defer cancel()
	return p.engine.Update(ctx, id, r)
}

// postpone keeps limits of a container that is being created until it is. A plugin that shares out CPUs asks for them
// while it is asked about the next container, whose creation must not wait for that of the first.
func (p *Plugins) postpone(id string, r Resources) (postponed bool, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.containers[id]
	if o == nil || !o.creating {
		return false, nil
	}
	if len(o.postponed) == maxPostponed {
		return false, fmt.Errorf("%w: the container is being created, and %d updates wait for its end",
			errdefs.ErrResourceExhausted, maxPostponed)
	}
	o.postponed = append(o.postponed, r)
	return true, nil
}

// endCreation has the updates made that waited for the creation of a container. It needs p.mu.
func (p *Plugins) endCreation(id string, o *object) {
	if len(o.postponed) == 0 {
		o.creating = false
		return
	}
	go p.makePostponed(id, o)
}

// makePostponed makes the updates that waited for the creation of a container. Later updates wait for these, so that
// all are made in order.
func (p *Plugins) makePostponed(id string, o *object) {
	for {
		p.mu.Lock()
		list := o.postponed
		o.postponed, o.creating = nil, len(list) > 0
		p.mu.Unlock()
		if len(list) == 0 {
			return
		}
		for _, r := range list {
			if err := p.limit(context.Background(), id, r); err != nil {
				p.log.WithError(err).WithField("container", id).Warn("failed to update a new container for NRI plugins")
			}
		}
	}
}
