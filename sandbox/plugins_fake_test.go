package sandbox

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/nri"
	"github.com/podd-project/podd/sandbox/record"
)

// fakePlugins are the plugins as one engine sees them: each question is a call that can fail, wait or crash.
type fakePlugins struct {
	m *machine
	h *faults
	// adjustment is the answer to Create, limits that to Update unless nil.
	adjustment nri.Adjustment
	limits     *nri.Resources
	// outcomes are those of the updates that the engine has reported.
	outcomes []error
}

// newPlugins returns the plugins of a new engine, to which they connect again: they know of what it tells them.
func (m *machine) newPlugins(h *faults) *fakePlugins {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.known)
	return &fakePlugins{m: m, h: h}
}

func (p *fakePlugins) ask(ctx context.Context, verb, id string) error {
	if err := p.h.before(ctx, "plugins "+verb, id); err != nil {
		return err
	}
	p.m.mu.Lock()
	p.m.known[id] = true
	p.m.mu.Unlock()
	return p.h.after(ctx, "plugins "+verb, id)
}

func (p *fakePlugins) forget(t lifecycle.EventType, id string) {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if t == lifecycle.Deleted {
		delete(p.m.known, id)
	}
}

func (p *fakePlugins) RunPod(ctx context.Context, pod record.PodView) error {
	return p.ask(ctx, "run pod", pod.ID)
}

func (p *fakePlugins) UpdatePod(ctx context.Context, pod record.PodView, _, _ *cri.LinuxContainerResources) error {
	return p.ask(ctx, "update pod", pod.ID)
}

func (p *fakePlugins) Start(ctx context.Context, c record.ContainerView) error {
	return p.ask(ctx, "start", c.ID)
}

func (p *fakePlugins) Create(ctx context.Context, c nri.Creation) (nri.Adjustment, error) {
	return p.adjustment, p.ask(ctx, "create", c.Container.ID)
}

func (p *fakePlugins) Update(ctx context.Context, c record.ContainerView, r *cri.LinuxContainerResources) (
	nri.Resources, func(context.Context, error) error, error,
) {
	limits := nri.Resources{CRI: r}
	if p.limits != nil {
		limits = *p.limits
	}
	then := func(_ context.Context, err error) error {
		p.outcomes = append(p.outcomes, err)
		return err
	}
	return limits, then, p.ask(ctx, "update", c.ID)
}

func (p *fakePlugins) PostPod(t lifecycle.EventType, pod record.PodView)           { p.forget(t, pod.ID) }
func (p *fakePlugins) PostPodUpdate(record.PodView)                                {}
func (p *fakePlugins) PostContainer(t lifecycle.EventType, c record.ContainerView) { p.forget(t, c.ID) }
func (p *fakePlugins) PostContainerUpdate(record.ContainerView)                    {}
