package netpool

import (
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/convert"
)

// Take returns an attachment for a new pod, nil if there is none for it. confDir is the CNI configuration directory of
// the pod's handler, "" for the node's. The caller makes a pod with the attachment's id, and then calls Given, or it
// makes none and calls Return.
func (p *Pool) Take(config *cri.PodSandboxConfig, confDir string) *Attachment {
	if p == nil || !p.note() || confDir != "" || !serves(config) {
		return nil
	}
	for {
		a := p.pop()
		if a == nil || p.intact(a) {
			return a
		}
		p.drop(a)
	}
}

// note notes that a pod is being created, and reports whether there is a pool at all.
func (p *Pool) note() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Now()
	return p.settings.Size > 0
}

// serves reports whether the pod's network is that of any pod: its own, without ports and limits, in a namespace that
// belongs to no user namespace and has the usual sysctls.
func serves(config *cri.PodSandboxConfig) bool {
	if convert.HostNetwork(config) || len(convert.PortMappings(config.GetPortMappings())) > 0 {
		return false
	}
	if uids, _ := convert.UserMappings(config); uids != nil {
		return false
	}
	if limits, err := convert.Bandwidth(config.GetAnnotations()); err != nil || limits != nil {
		return false
	}
	for key := range config.GetLinux().GetSysctls() {
		if strings.HasPrefix(key, "net.") || strings.HasPrefix(key, "net/") {
			return false
		}
	}
	return true
}

// pop takes the oldest attachment.
func (p *Pool) pop() *Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		p.counts.Missed++
		return nil
	}
	a := p.ready[0]
	p.ready = slices.Clone(p.ready[1:])
	p.taken[a.ID] = a
	p.wakeUp()
	return a
}

// intact reports whether a is as it was made.
func (p *Pool) intact(a *Attachment) bool {
	state, err := p.network.State(a.ID)
	if err == nil && state == a.state {
		return true
	}
	p.log.WithError(err).WithField("id", a.ID).
		Info("a pod network that was made in advance has changed or is of another configuration, detaching it")
	return false
}

// drop gives up an attachment that was popped.
func (p *Pool) drop(a *Attachment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, a.ID)
	p.stale = append(p.stale, a)
	p.wakeUp()
}

// Given ends what Take began: the pod with the id of a is known by a record of its own. A nil a is ignored.
func (p *Pool) Given(a *Attachment) {
	if a == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, a.ID)
	p.counts.Taken++
}

// Return ends what Take began: there is no pod with the id of a, and there was none. A nil a is ignored.
func (p *Pool) Return(a *Attachment) {
	if a == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, a.ID)
	p.put(a)
}

// put makes a ready, or stale if it is of former settings, beyond the size, or the pool has given way. mu is held.
func (p *Pool) put(a *Attachment) {
	if a.generation == p.generation && len(p.ready) < p.settings.Size && !time.Now().Before(p.next) {
		p.ready = append(p.ready, a)
		return
	}
	p.stale = append(p.stale, a)
	p.wakeUp()
}
