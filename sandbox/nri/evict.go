package nri

import (
	"context"
	"strings"

	"github.com/containerd/nri/pkg/api"
)

const (
	// maxEvictors bounds the containers that are being stopped at a time because plugins evict them.
	maxEvictors = 4
	// maxReason bounds a plugin's reason for an eviction, which is logged.
	maxReason = 256
)

// eviction is a container that a plugin wants to be stopped.
type eviction struct {
	id, reason string
	// container is the state of the container, whose field evicting is reset at the end.
	container *object
}

// evict stops containers, without waiting for it. A container waits once at a time however often it is named, and ids
// of no container are dropped: so no more evictions wait than there are containers.
func (p *Plugins) evict(list []*api.ContainerEviction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unknown := 0
	for _, e := range list {
		o := p.containers[e.GetContainerId()]
		if o == nil {
			unknown++
		}
		if o == nil || o.evicting {
			continue
		}
		o.evicting = true
		reason := e.GetReason()
		reason = strings.Clone(reason[:min(len(reason), maxReason)]) // a part would keep the whole message in memory
		p.evictions = append(p.evictions, eviction{strings.Clone(e.GetContainerId()), reason, o})
	}
	if unknown > 0 {
		p.log.WithField("number", unknown).Warn("NRI plugin evicts containers that do not exist")
	}
	for range min(maxEvictors-p.evictors, len(p.evictions)) {
		p.evictors++
		go p.workEvictions()
	}
}

// workEvictions stops containers until none waits.
func (p *Plugins) workEvictions() {
	for {
		next, ok := p.nextEviction()
		if !ok {
			return
		}
		log := p.log.WithField("container", next.id).WithField("reason", next.reason)
		log.Warn("NRI plugin evicts a container")
		if err := p.engine.Evict(context.Background(), next.id, next.reason); err != nil {
			log.WithError(err).Error("failed to evict a container for an NRI plugin")
		}
		p.mu.Lock()
		next.container.evicting = false
		p.mu.Unlock()
	}
}

// nextEviction takes the first eviction that waits. If there is none, the worker is counted as ended.
func (p *Plugins) nextEviction() (eviction, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.evictions) == 0 {
		p.evictors--
		p.evictions = nil
		return eviction{}, false
	}
	next := p.evictions[0]
	p.evictions = p.evictions[1:]
	return next, true
}
