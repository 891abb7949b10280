package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

const (
	// statusInterval is the time between two reads of the configuration, each followed by STATUS; statusTimeout is the
	// limit for one STATUS of all plugins.
	statusInterval = 15 * time.Second
	statusTimeout  = 10 * time.Second
	// debounceTime is the delay after a change of the configuration directory: installers write several files.
	debounceTime = 100 * time.Millisecond
)

// health holds the answer of Ready. One goroutine reads the configuration and runs STATUS of the plugins, at intervals
// and when the directory changes; no caller ever waits for them.
type health struct {
	current atomic.Pointer[readiness]
	changed chan struct{} // holds a value while there is a change to read
	cni     *CNI
	// interval and timeout are statusInterval and statusTimeout, except in tests.
	interval, timeout time.Duration
	// status runs the plugins' STATUS; tests replace it.
	status func(context.Context, *libcni.NetworkConfigList) error

	// Accessed by the goroutine of run only:
	list   *libcni.NetworkConfigList // as last read, nil for none
	warned map[string]string         // errors that were logged, by path of the invalid file
}

// readiness is the published answer: err is nil if the network is ready.
type readiness struct{ err error }

func newHealth(c *CNI) *health {
	h := &health{
		changed: make(chan struct{}, 1), cni: c, interval: statusInterval, timeout: statusTimeout, status: c.runStatus,
	}
	h.current.Store(&readiness{fmt.Errorf("%w: the CNI configuration has not been read yet", errdefs.ErrUnavailable)})
	return h
}

func (h *health) ready() error { return h.current.Load().err }

// wake makes run read the configuration soon. It does not block.
func (h *health) wake() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run refreshes the answer until ctx ends.
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

// refreshUntilChanged refreshes. If the configuration changes first, it aborts a running STATUS and returns true.
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

// debounce waits for further changes.
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

// refresh reads the configuration and, if its CNI version has STATUS, runs that.
func (h *health) refresh(ctx context.Context) {
	if !h.readConf() || !atLeast(h.list, "1.1.0") {
		return
	}
	err := h.status(ctx, h.list)
	if ctx.Err() != nil {
		return // interrupted: says nothing about the plugins
	}
	if err != nil {
		err = fmt.Errorf("%w: CNI network %s: %w", errdefs.ErrUnavailable, h.list.Name, err)
	}
	h.publish(err)
}

// readConf reads the configuration directory and publishes the resulting answer. It returns true if STATUS should
// run.
func (h *health) readConf() bool {
	list, broken, err := h.cni.choice.load(h.cni.cfg().ConfDir)
	h.warn(broken)
	if errors.Is(err, errIncomplete) {
		time.AfterFunc(settling, h.wake) // it may have been removed for good
	}
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
	case !same: // the status of the previous network does not apply
		h.publish(fmt.Errorf("%w: STATUS of CNI network %s has not been checked yet", errdefs.ErrUnavailable, list.Name))
	}
	return true
}

// publish replaces the answer and logs a change.
func (h *health) publish(err error) {
	old := h.current.Swap(&readiness{err}).err
	log := h.cni.log.WithField("conf_dir", h.cni.cfg().ConfDir)
	switch {
	case err == nil && old != nil:
		log.WithField("network", h.list.Name).Info("pod network is ready")
	case err != nil && (old == nil || old.Error() != err.Error()):
		log.WithError(err).Warn("pod network is not ready")
	}
}

// warn logs each invalid file once, and again when its error changes.
func (h *health) warn(broken []brokenConf) {
	now := map[string]string{}
	for _, b := range broken {
		now[b.path] = b.err.Error()
		if h.warned[b.path] != b.err.Error() {
			h.cni.log.WithError(b.err).WithField("file", b.path).
				Warn("failed to load CNI configuration, trying the next file")
		}
	}
	h.warned = now
}

// runStatus runs CNI STATUS of all plugins of list.
func (c *CNI) runStatus(ctx context.Context, list *libcni.NetworkConfigList) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.health.timeout,
		fmt.Errorf("no answer within %v: %w", c.health.timeout, context.DeadlineExceeded))
	defer cancel()
	return c.libcni(execOptions{}).GetStatusNetworkList(ctx, list)
}
