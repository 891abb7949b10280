// Package networktest supports tests of package network and of its callers: Suite, which checks how a pod network
// behaves; Fake, a pod network in memory that passes Suite, on which the tests of sandbox and server/adapt_test.go run
// the engine; and the means to run the real one, with real CNI plugins, in a network namespace that disappears with the
// test process.
//
// Only tests may import it.
package networktest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/network"
)

// Network is what Suite checks. *network.CNI and *Fake implement it.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, podID string) error
	Abandon(ctx context.Context, r network.Request) error
	Ready() error
	Leases() (map[string][]string, error)
	Attachments() ([]string, error)
	Dial(ctx context.Context, podID string, port uint16) (net.Conn, error)
	GC(ctx context.Context, living func() []string) error
}

var (
	_ Network = (*network.CNI)(nil)
	_ Network = (*Fake)(nil)
)

// Fake is a pod network in memory. It outlives the engine that uses it, as the node's network outlives the daemon: a
// restarted engine is given a Reopen of it.
type Fake struct {
	// Before, if set, is called at the start of setup, teardown, abandon, gc and dial, with that word and the pod's id
	// ("" for gc); After when the call has succeeded. An error replaces the call's own result, so Before fails a call
	// without its effect and After with it. Both are called without locks and may block or end their goroutine. Set
	// them before the Fake is used.
	Before, After func(ctx context.Context, verb, id string) error
	// Listener is the address that Dial connects to, whatever the pod and the port. Set it before the Fake is used.
	Listener string

	*fakeState
}

// fakeState is shared by all Fakes that Reopen returns.
type fakeState struct {
	// gate prevents attachments between GC's call of living and the collection.
	gate     sync.RWMutex
	mu       sync.Mutex // guards the rest
	attached map[string]bool
	leases   map[string][]netip.Addr // a lease outlives the attachment whose record was lost
	last     network.Result
	notReady error
	requests []network.Request
	cidr     string
}

// NewFake returns a network without attachments.
func NewFake() *Fake {
	return &Fake{fakeState: &fakeState{
		attached: map[string]bool{}, leases: map[string][]netip.Addr{},
		last: network.Result{
			IPs: []netip.Addr{netip.MustParseAddr("10.88.0.1"), netip.MustParseAddr("fd88::1")}, Interface: "eth0",
		},
	}}
}

// Reopen returns a Fake with the same attachments and without hooks, as a restarted daemon opens the network.
func (f *Fake) Reopen() *Fake { return &Fake{Listener: f.Listener, fakeState: f.fakeState} }

// hooked runs one verb between the hooks. act takes the lock itself.
func (f *Fake) hooked(ctx context.Context, verb, id string, act func() error) error {
	if f.Before != nil {
		if err := f.Before(ctx, verb, id); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := act(); err != nil || f.After == nil {
		return err
	}
	return f.After(ctx, verb, id)
}

// Setup allocates the next addresses of 10.88.0.0/16 and fd88::/64 for the pod.
func (f *Fake) Setup(ctx context.Context, r network.Request) (result network.Result, err error) {
	if err := r.Validate(); err != nil {
		return network.Result{}, err
	}
	err = f.hooked(ctx, "setup", r.PodID, func() (err error) {
		result, err = f.attach(r)
		return err
	})
	if err != nil {
		return network.Result{}, err
	}
	return result, nil
}

func (f *Fake) attach(r network.Request) (network.Result, error) {
	f.gate.RLock()
	defer f.gate.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notReady != nil {
		return network.Result{}, f.notReady
	}
	if f.attached[r.PodID] {
		return network.Result{}, fmt.Errorf("%w: network attachment of pod %s", errdefs.ErrAlreadyExists, r.PodID)
	}
	f.attached[r.PodID] = true // as with the real one, also when a plugin fails: Teardown undoes it
	if _, err := os.Lstat(r.Netns); err != nil {
		return network.Result{}, fmt.Errorf("attach pod %s: %w", r.PodID, err)
	}
	next := network.Result{Interface: f.last.Interface}
	for _, ip := range f.last.IPs {
		next.IPs = append(next.IPs, ip.Next())
	}
	f.last = next
	f.leases[r.PodID] = next.IPs
	f.requests = append(f.requests, r)
	return next, nil
}

// Teardown releases the pod's addresses.
func (f *Fake) Teardown(ctx context.Context, podID string) error {
	if podID == "" {
		return fmt.Errorf("%w: no pod id", errdefs.ErrInvalidArgument)
	}
	return f.hooked(ctx, "teardown", podID, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.detach(podID)
		return nil
	})
}

// detach releases what an attachment holds; the lock is held. Without an attachment it does not release the lease
// either, like the real Teardown without its record.
func (f *Fake) detach(podID string) {
	if f.attached[podID] {
		delete(f.leases, podID)
		delete(f.attached, podID)
	}
}

// Abandon frees the pod's address, whether it is attached or not.
func (f *Fake) Abandon(ctx context.Context, r network.Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	return f.hooked(ctx, "abandon", r.PodID, func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.leases, r.PodID)
		delete(f.attached, r.PodID)
		return nil
	})
}

// Lose drops a pod's attachment but keeps its lease, as if the record were deleted from the disk.
func (f *Fake) Lose(podID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.attached, podID)
}

// Ready returns the error set by SetReady.
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

// Attachments returns the attached pods, sorted: at the end of a test, the leaks.
func (f *Fake) Attachments() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.attached)), nil
}

// Leases returns the allocated addresses, by pod.
func (f *Fake) Leases() (map[string][]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	leases := map[string][]string{}
	for id, ips := range f.leases {
		for _, ip := range ips {
			leases[id] = append(leases[id], ip.String())
		}
	}
	return leases, nil
}

// Requests returns all requests that had an effect, in order.
func (f *Fake) Requests() []network.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.requests)
}

// GC detaches every pod that living does not return.
func (f *Fake) GC(ctx context.Context, living func() []string) error {
	return f.hooked(ctx, "gc", "", func() error {
		f.gate.Lock()
		defer f.gate.Unlock()
		keep := living()
		f.mu.Lock()
		defer f.mu.Unlock()
		for id := range f.attached {
			if !slices.Contains(keep, id) {
				f.detach(id)
			}
		}
		return nil
	})
}

// Dial connects to Listener. A pod that is not attached is errdefs.ErrNotFound.
func (f *Fake) Dial(ctx context.Context, podID string, _ uint16) (conn net.Conn, err error) {
	err = f.hooked(ctx, "dial", podID, func() (err error) {
		f.mu.Lock()
		attached := f.attached[podID]
		f.mu.Unlock()
		if !attached {
			return fmt.Errorf("%w: pod %s is not attached to a network", errdefs.ErrNotFound, podID)
		}
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp", f.Listener)
		return err
	})
	return conn, err
}

// SetPodCIDR stores cidr; PodCIDR returns it.
func (f *Fake) SetPodCIDR(_ context.Context, cidr string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cidr = cidr
	return nil
}

// PodCIDR returns the last value passed to SetPodCIDR.
func (f *Fake) PodCIDR() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cidr
}
