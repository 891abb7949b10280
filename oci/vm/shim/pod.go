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
	machine *vmm.Machine
	jail    *jail.Jail
	session *yamux.Session
	tasks   task.TTRPCTaskService

	mu sync.Mutex
	// infraPid is the first process of the infra container, as the guest counts.
	infraPid uint32
	// containers are those that exist, infra container included.
	containers map[string]bool
	// pipes are the guest's named pipes that are being copied; pipeCount is how many there were, for their names.
	pipes     map[processKey][]string
	pipeCount int
}

// pid is what stands for every process of the pod on the host: the machine's monitor.
func (p *pod) pid() uint32 { return uint32(p.machine.Pid()) }

// open opens a stream to the guest.
func (p *pod) open(h wire.Header) (net.Conn, error) {
	c, err := p.session.Open()
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
		return fmt.Errorf("guest: %s: %w", r.Error, errdefs.ErrUnknown)
	}
	return nil
}

// add registers a container. The ids are names of directories, too.
func (p *pod) add(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.containers[id] {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrAlreadyExists)
	}
	p.containers[id] = true
	return nil
}

// remove unregisters a container and removes what the guest was given of it.
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
