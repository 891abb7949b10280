// Package netpool keeps pod networks ready: network namespaces that CNI has attached already. A new pod takes one
// instead of waiting for the plugins.
//
// An attachment is made under a new id, and the pod that takes it gets that id. So everything has the names that it
// would have had without the pool (CNI's container id, the namespace's file, addresses, firewall rules), and no other
// part of podd, or of an earlier version, needs to know: what no pod has taken is garbage of an id without a record.
// The pool is in memory only. An attachment is given to one pod, never taken back from it, and never outlives the
// daemon but as garbage.
//
// Only networks whose plugins do the same for every pod have a pool (see network.CNI.Generic), and only pods without
// ports, limits and the like take from it.
package netpool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/record"
)

// Namespaces pins network namespaces; see sandbox.Namespaces.
type Namespaces interface {
	Pin(ctx context.Context, r namespaces.Request) error
	Sysctl(ctx context.Context, netns string, sysctls map[string]string) error
	Unpin(ctx context.Context, paths ...string) error
}

// Network attaches them; see network.CNI.
type Network interface {
	Setup(ctx context.Context, r network.Request) (network.Result, error)
	Teardown(ctx context.Context, podID string) error
	Abandon(ctx context.Context, r network.Request) error
	Generic() error
	State(podID string) (string, error)
}

// Settings are what a reload can change.
type Settings struct {
	// Size is the number of attachments to keep ready, 0 for no pool.
	Size int
	// Sysctls are set in each network namespace, as in that of a pod that does not set them; see namespaces.Request.
	Sysctls map[string]string
}

// Attachment is a network namespace that is pinned and attached.
type Attachment struct {
	// ID is CNI's container id, and that of the pod that takes it.
	ID string
	// Netns is the pin file.
	Netns string
	// Result is that of CNI.
	Result network.Result
	// state is what the network says of it as long as it is as it was made.
	state string
	// generation and sysctls are those of the settings that it was made with.
	generation int
	sysctls    map[string]string
	// freed is whether CNI has detached it. It needs the pool's work.
	freed bool
}

// newAttachment returns an attachment that is not made yet.
func newAttachment(l record.Layout) *Attachment {
	id := l.NewPodID()
	return &Attachment{ID: id, Netns: l.Netns(id)}
}

// Pool is the attachments of a node. All methods may be called concurrently, and those that the engine calls also on
// nil, which is a pool without attachments.
type Pool struct {
	layout     record.Layout
	namespaces Namespaces
	network    Network
	log        logrus.FieldLogger

	// work is held while attachments are made or detached.
	work lifecycle.Slot
	wake chan struct{}
	// looked is when the ready attachments were last compared with the machine; since busySince the engine is found busy.
	// Both need work.
	looked, busySince time.Time
	// freed counts the attachments that no longer hold an address.
	freed atomic.Uint64

	mu       sync.Mutex // guards the rest
	settings Settings
	// generation counts the settings: what is made with former ones is detached.
	generation int
	ready      []*Attachment
	// stale are to be detached; taken are given to pods that are not known by their own records yet.
	stale []*Attachment
	taken map[string]*Attachment
	// making is the one that is being made; then stop ends that.
	making *Attachment
	stop   context.CancelCauseFunc
	// asked is when a pod was last created; none is made before next, which is backoff after the last failure.
	asked, next time.Time
	backoff     time.Duration
	counts      Status // its counters
	problem     string
}

// Status is the pool for people and metrics.
type Status struct {
	Size  int `json:"size"`
	Ready int `json:"ready"`
	// Taken counts the pods that took an attachment, Missed those that could have and found none.
	Taken  uint64 `json:"taken"`
	Missed uint64 `json:"missed"`
	// Problem is why no attachments are made at present, "" if they are.
	Problem string `json:"problem,omitempty"`
}

// New returns an empty pool: Run fills it.
func New(s Settings, l record.Layout, ns Namespaces, n Network, log logrus.FieldLogger) *Pool {
	return &Pool{
		layout: l, namespaces: ns, network: n, log: log, settings: s, taken: map[string]*Attachment{},
		work: lifecycle.NewSlot(), wake: make(chan struct{}, 1),
	}
}

// Reconfigure replaces the settings. What was made with the former ones, or with a former configuration of the network,
// is detached.
func (p *Pool) Reconfigure(s Settings) {
	p.mu.Lock()
	p.settings = s
	p.generation++
	p.stale, p.ready = append(p.stale, p.ready...), nil
	p.next, p.backoff = time.Time{}, 0
	p.mu.Unlock()
	p.wakeUp()
}

// Status returns the present numbers.
func (p *Pool) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.counts
	s.Size, s.Ready, s.Problem = p.settings.Size, len(p.ready), p.problem
	return s
}

// IDs returns the ids of all attachments that belong to the pool, and of those taken by pods whose creation is in
// progress: a caller that lists the pods afterwards knows all ids that are no garbage.
func (p *Pool) IDs() []string {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []string
	for _, list := range [][]*Attachment{p.ready, p.stale} {
		for _, a := range list {
			ids = append(ids, a.ID)
		}
	}
	for id := range p.taken {
		ids = append(ids, id)
	}
	if p.making != nil {
		ids = append(ids, p.making.ID)
	}
	return ids
}

func (p *Pool) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default: // it will look
	}
}
