// Package networktest has what tests of and around package network need: Suite, which says how a pod network behaves;
// Fake, one in memory, for tests of the sandbox engine; and the means to run the real one, with real CNI plugins, in
// a network namespace that takes everything with it when the test process ends.
//
// It owns nothing but what the tests that use it make. Nothing but tests may import it.
package networktest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/network"
)

// Network is what Suite checks. *network.CNI and *Fake are two.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, podID string) error
	Ready() error
	Attachments() ([]string, error)
	GC(ctx context.Context, living func() []string) error
}

var (
	_ Network = (*network.CNI)(nil)
	_ Network = (*Fake)(nil)
)

// Moment is a point of a Fake's call at which its hook is asked.
type Moment struct {
	// Op is "setup" or "teardown".
	Op string
	// PodID is the pod it is about.
	PodID string
	// Done is false before the effect and true after it, when an error makes the caller believe that nothing happened.
	Done bool
}

// Fake is a pod network in memory. It outlives the engine that uses it, as the node's network outlives the daemon.
// The zero value is ready for use.
type Fake struct {
	// Hook is asked before and after every effect; its error becomes that of the call. It may wait, as a plugin that
	// hangs, until ctx ends. Set it before the Fake is used. May be nil.
	Hook func(ctx context.Context, m Moment) error
	// Listener is the address that Dial connects to, whatever the pod and the port. Set it before the Fake is used.
	Listener string

	mu       sync.Mutex // guards what follows
	attached map[string]netip.Addr
	last     netip.Addr
	notReady error
	requests []network.Request
	cidr     string
}

// Setup gives the pod the next address of 10.88.0.0/16.
func (f *Fake) Setup(ctx context.Context, r network.Request) (network.Result, error) {
	if err := r.Validate(); err != nil {
		return network.Result{}, err
	}
	if err := f.moment(ctx, Moment{Op: "setup", PodID: r.PodID}); err != nil {
		return network.Result{}, err
	}
	ip, err := f.attach(r)
	if err != nil {
		return network.Result{}, err
	}
	if err := f.moment(ctx, Moment{Op: "setup", PodID: r.PodID, Done: true}); err != nil {
		return network.Result{}, err
	}
	return network.Result{IPs: []netip.Addr{ip}, Interface: "eth0"}, nil
}

func (f *Fake) attach(r network.Request) (netip.Addr, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notReady != nil {
		return netip.Addr{}, f.notReady
	}
	if _, ok := f.attached[r.PodID]; ok {
		return netip.Addr{}, fmt.Errorf("%w: network attachment of pod %s", errdefs.ErrAlreadyExists, r.PodID)
	}
	if !f.last.IsValid() {
		f.last, f.attached = netip.MustParseAddr("10.88.0.1"), map[string]netip.Addr{}
	}
	f.last = f.last.Next()
	f.attached[r.PodID] = f.last
	f.requests = append(f.requests, r)
	return f.last, nil
}

// Teardown gives the pod's address back.
func (f *Fake) Teardown(ctx context.Context, podID string) error {
	if podID == "" {
		return fmt.Errorf("%w: no pod id", errdefs.ErrInvalidArgument)
	}
	if err := f.moment(ctx, Moment{Op: "teardown", PodID: podID}); err != nil {
		return err
	}
	f.mu.Lock()
	delete(f.attached, podID)
	f.mu.Unlock()
	return f.moment(ctx, Moment{Op: "teardown", PodID: podID, Done: true})
}

func (f *Fake) moment(ctx context.Context, m Moment) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f.Hook == nil {
		return nil
	}
	return f.Hook(ctx, m)
}

// Ready answers what SetReady was told.
func (f *Fake) Ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.notReady
}

// SetReady makes the network ready, or with an error not ready: then Setup fails with it, too.
func (f *Fake) SetReady(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notReady = err
}

// Attachments returns the pods that are attached, sorted: in a test that is over, what leaked.
func (f *Fake) Attachments() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.attached)), nil
}

// Requests returns all requests that had an effect, in order.
func (f *Fake) Requests() []network.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// Abandon is Teardown: the fake has no record to lose.
func (f *Fake) Abandon(ctx context.Context, r network.Request) error { return f.Teardown(ctx, r.PodID) }

// Leases are none: the fake keeps no store of addresses.
func (f *Fake) Leases() (map[string][]string, error) { return nil, nil }

// GC tears down every pod that is not among the living.
func (f *Fake) GC(ctx context.Context, living func() []string) error {
	ids, err := f.Attachments()
	if err != nil {
		return err
	}
	keep := living()
	for _, id := range ids {
		if slices.Contains(keep, id) {
			continue
		}
		if err := f.Teardown(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// Dial connects to Listener. A pod that is not attached is errdefs.ErrNotFound.
func (f *Fake) Dial(ctx context.Context, podID string, _ uint16) (net.Conn, error) {
	f.mu.Lock()
	_, ok := f.attached[podID]
	f.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("%w: pod %s has no network of its own", errdefs.ErrNotFound, podID)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", f.Listener)
}

// SetPodCIDR remembers cidr; PodCIDR returns it.
func (f *Fake) SetPodCIDR(_ context.Context, cidr string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cidr = cidr
	return nil
}

// PodCIDR returns what SetPodCIDR was told.
func (f *Fake) PodCIDR() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cidr
}
