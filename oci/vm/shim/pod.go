package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/hashicorp/yamux"

	"github.com/podd-project/podd/oci/vm/jail"
	"github.com/podd-project/podd/oci/vm/vmm"
	"github.com/podd-project/podd/oci/vm/wire"
)

// pod is the virtual machine of a pod, with the containers in it.
type pod struct {
	id      string
	options Options
	machine *vmm.Machine
	jail    *jail.Jail
	session *yamux.Session
	tasks   task.TTRPCTaskService
	// greeted is when the agent had booted.
	greeted time.Time
	// leaveCgroup undoes joinCgroup. It is nil before.
	leaveCgroup func() error

	// opening has a place for the stream that is being opened.
	opening chan struct{}

	mu sync.Mutex
	// infraPid is the first process of the infra container, as the guest counts.
	infraPid uint32
	// containers are those that exist, infra container included, each with the time of the last out-of-memory kill that
	// was published.
	containers map[string]time.Time
	// pipes are the guest's named pipes that are being copied, with what ends that, nil before they are open; pipeCount
	// is how many there were, for their names.
	pipes     map[processKey]map[string]context.CancelFunc
	pipeCount int
}

func newPod(id string, o Options) *pod {
	return &pod{
		id: id, options: o, opening: make(chan struct{}, 1), containers: map[string]time.Time{},
		pipes: map[processKey]map[string]context.CancelFunc{},
	}
}

// pid is what stands for every process of the pod on the host: the machine's monitor.
func (p *pod) pid() uint32 { return uint32(p.machine.Pid()) }

// open opens a stream to the guest, within callTimeout. Streams are opened one at a time: a guest that takes none holds
// back one goroutine, and no caller for longer than its deadline.
func (p *pod) open(ctx context.Context, h wire.Header) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	select {
	case p.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("stream to the guest, which does not take another one: %w", ctx.Err())
	}
	type stream struct {
		net.Conn
		err error
	}
	opened := make(chan stream)
	go func() {
		defer func() { <-p.opening }()
		c, err := openStream(p.session, h)
		select {
		case opened <- stream{c, err}:
		case <-ctx.Done():
			if err == nil {
				_ = c.Close()
			}
		}
	}()
	select {
	case s := <-opened:
		return s.Conn, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("stream to the guest: %w", ctx.Err())
	}
}

// openStream waits as long as the guest likes.
func openStream(s *yamux.Session, h wire.Header) (net.Conn, error) {
	c, err := s.Open()
	if err != nil {
		return nil, fmt.Errorf("stream to the guest: %w", err)
	}
	if err := wire.WriteLine(c, h); err != nil {
		return nil, errors.Join(fmt.Errorf("stream to the guest: %w", err), c.Close())
	}
	return c, nil
}

// readResult reads the answer to a request, for at most callTimeout.
func readResult(ctx context.Context, c net.Conn) error {
	deadline := time.Now().Add(callTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = c.SetReadDeadline(deadline)
	defer c.SetReadDeadline(noDeadline)
	var r wire.Result
	if err := wire.ReadLine(c, &r); err != nil {
		return fmt.Errorf("answer of the guest: %w", err)
	}
	if r.Error != "" {
		return fmt.Errorf("guest: %s: %w", printable(r.Error), errdefs.ErrUnknown)
	}
	return nil
}

// add registers a container. The ids are names of directories, too.
func (p *pod) add(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, exists := p.containers[id]; exists {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrAlreadyExists)
	}
	p.containers[id] = time.Time{}
	return nil
}

// remove unregisters a container and removes its files from the guest's.
func (p *pod) remove(id string) error {
	p.mu.Lock()
	delete(p.containers, id)
	p.mu.Unlock()
	return p.jail.RemoveContainer(id)
}

func (p *pod) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.containers) == 0
}
