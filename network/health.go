package network

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

// settle is how long the configuration directory is left alone after a change: installers write several files.
const debounceTime = 100 * time.Millisecond

// health keeps the answer of Ready. One goroutine looks at the configuration and asks the plugins, at intervals and
// when the directory changes; nobody else ever waits for them.
type health struct {
	current  atomic.Pointer[readiness]
	changed  chan struct{} // holds a value when there is something new to see
	interval time.Duration
	cni      *CNI
	// status asks the plugins; tests put another one in its place.
	status func(context.Context, *libcni.NetworkConfigList) error

	// Of the goroutine that looks:
	list   *libcni.NetworkConfigList // as last seen, nil for none
	warned map[string]string         // broken files by path, and what was logged of them
}

// verdict is the published answer: nil when the network is ready.
type readiness struct{ err error }

func newHealth(c *CNI) *health {
	h := &health{changed: make(chan struct{}, 1), interval: c.cfg.StatusInterval, cni: c, status: c.askStatus}
	h.current.Store(&readiness{fmt.Errorf("%w: the CNI configuration has not been read yet", errdefs.ErrUnavailable)})
	return h
}

func (h *health) ready() error { return h.current.Load().err }

// poke makes run look again soon. It never blocks.
func (h *health) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run looks and asks until the end of ctx.
func (h *health) run(ctx context.Context) {
	tick := time.NewTicker(h.interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := h.refreshUntilChanged(ctx)
		if !changed {
			select {
			case <-h.changed:
				changed = true
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		if changed {
			h.debounce(ctx)
		}
	}
}

// refreshUntilChanged refreshes. A change of the configuration ends that, with a STATUS under way, and returns true.
func (h *health) refreshUntilChanged(ctx context.Context) (changed bool) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.refresh(ctx)
	}()
	select {
	case <-done:
	case <-h.changed:
		changed = true
	case <-ctx.Done():
	}
	cancel()
	<-done
	return changed
}

// rest lets the changes settle that come together.
func (h *health) debounce(ctx context.Context) {
	select {
	case <-time.After(debounceTime):
	case <-ctx.Done():
	}
	select {
	case <-h.changed:
	default:
	}
}

// refresh looks at the configuration and, where it is new enough for that, asks the plugins.
func (h *health) refresh(ctx context.Context) {
	if !h.readConf() || !atLeast(h.list, "1.1.0") {
		return
	}
	err := h.status(ctx, h.list)
	if ctx.Err() != nil {
		return // interrupted, which says nothing about the plugins
	}
	if err != nil {
		err = fmt.Errorf("%w: CNI network %s: %w", errdefs.ErrUnavailable, h.list.Name, err)
	}
	h.publish(err)
}

// look reads the configuration directory. It publishes everything but the plugins' own opinion, and is true when they
// are to be asked.
func (h *health) readConf() bool {
	list, broken, err := loadConf(h.cni.cfg.ConfDir)
	h.warn(broken)
	if err == nil {
		if missing := h.cni.missingPlugin(list); missing != nil {
			err = fmt.Errorf("%w: CNI network %s: %w", errdefs.ErrUnavailable, list.Name, missing)
		}
	}
	if err != nil {
		h.list = nil
		h.publish(err)
		return false
	}
	same := h.list != nil && bytes.Equal(h.list.Bytes, list.Bytes)
	h.list = list
	switch {
	case !atLeast(list, "1.1.0"):
		h.publish(nil)
	case !same: // an answer about the network before says nothing about this one
		h.publish(fmt.Errorf("%w: CNI network %s has not said yet how it is", errdefs.ErrUnavailable, list.Name))
	}
	return true
}

// publish replaces the answer and logs a change of it.
func (h *health) publish(err error) {
	old := h.current.Swap(&readiness{err}).err
	log := h.cni.log.WithField("confDir", h.cni.cfg.ConfDir)
	switch {
	case err == nil && old != nil:
		log.WithField("network", h.list.Name).Info("pod network is ready")
	case err != nil && (old == nil || old.Error() != err.Error()):
		log.WithError(err).Warn("pod network is not ready")
	}
}

// warn logs each broken file once, and again when it is broken in another way.
func (h *health) warn(broken []brokenConf) {
	now := map[string]string{}
	for _, b := range broken {
		now[b.path] = b.err.Error()
		if h.warned[b.path] != b.err.Error() {
			h.cni.log.WithError(b.err).WithField("file", b.path).Warn("CNI configuration is broken, the next file is tried")
		}
	}
	h.warned = now
}

// askStatus runs CNI STATUS of all plugins of list.
func (c *CNI) askStatus(ctx context.Context, list *libcni.NetworkConfigList) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.StatusTimeout,
		fmt.Errorf("no answer within %v: %w", c.cfg.StatusTimeout, context.DeadlineExceeded))
	defer cancel()
	return c.libcni(execOptions{}).GetStatusNetworkList(ctx, list)
}
