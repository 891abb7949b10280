package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
)

// RunPod creates a pod sandbox and returns its id once it is ready. When the caller gives up before, the creation
// goes on, and a call with the same config joins it. A pod of that name that is ready already is returned; one
// with another config is errdefs.ErrAlreadyExists.
func (e *Engine) RunPod(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	handler, err := e.route(config, handler)
	if err != nil {
		return "", err
	}
	rt, err := e.runtime(handler)
	if err != nil {
		return "", err
	}
	if err := rt.Ready(); err != nil {
		return "", fmt.Errorf("%w: runtime handler %q cannot be used: %w", errdefs.ErrUnavailable, cmp.Or(handler, e.cfg.DefaultHandler), err)
	}
	r, err := e.newPodRecord(config, handler, rt.Features())
	if err != nil {
		return "", err
	}
	p, err := e.beginPod(ctx, r)
	if err != nil {
		return "", err
	}
	return p.ID, p.creation.await(ctx, "pod sandbox")
}

// beginPod finds the pod that r means or begins to make it. A pod of that name with another config that nobody
// has heard of, because the kubelet changed its mind before the answer came, cannot be removed by anybody else: it
// makes room.
func (e *Engine) beginPod(ctx context.Context, r record.Pod) (*Pod, error) {
	p := e.newPod(r, record.PodStatus{State: record.PodCreating})
	for {
		other := e.store.addPod(p)
		if other == nil {
			if !e.work.Go(func() { e.createPod(ctx, p) }) {
				e.store.removePod(p)
				p.creation.finish(errClosing)
			}
			return p, nil
		}
		err := sameRequest(other, p)
		if err != nil && other.creation.abandoned() {
			e.podLog(other).Info("pod sandbox was asked for again with another configuration, removing the first")
			if err = e.RemovePod(ctx, other.ID); err == nil || errdefs.IsNotFound(err) {
				continue
			}
		}
		p.life.end(nil)
		host.ReleaseLabels(p.Labels)
		return other, err
	}
}

func (e *Engine) newPodRecord(config *cri.PodSandboxConfig, handler string, features oci.Features) (record.Pod, error) {
	resolved := cmp.Or(handler, e.cfg.DefaultHandler)
	infra, err := e.cfg.Handlers[resolved].needsInfra(config, features)
	if err != nil {
		return record.Pod{}, fmt.Errorf("runtime handler %q: %w", resolved, err)
	}
	labels, err := host.Labels(config.GetLinux().GetSecurityContext().GetSelinuxOptions())
	if err != nil {
		return record.Pod{}, err
	}
	r := record.Pod{
		ID: newID(), CreatedAt: time.Now(), Config: config, RequestedHandler: handler, Labels: labels, BootID: e.cfg.BootID,
		ResolvedHandler: resolved, Infra: infra, OwnKernel: features.OwnKernel,
	}
	if !hostNetwork(config) {
		r.Netns = filepath.Join(e.netnsDir(), r.ID)
	}
	return r, nil
}

// sameRequest reports why a request for a pod like want cannot be answered with have, which has its name.
func sameRequest(have, want *Pod) error {
	state := have.Status().State
	if have.RequestedHandler == want.RequestedHandler && proto.Equal(have.Config, want.Config) && (state == record.PodCreating || state == record.PodReady) {
		return nil
	}
	m := want.Config.GetMetadata()
	return fmt.Errorf("%w: pod sandbox %s (%s) is %s/%s attempt %d already, with another configuration or no longer ready: remove it first, or use another attempt",
		errdefs.ErrAlreadyExists, have.ID, state, m.GetNamespace(), m.GetName(), m.GetAttempt())
}

// createPod makes p or leaves nothing of it.
func (e *Engine) createPod(caller context.Context, p *Pod) {
	err := e.onPod(caller, operation.RunPod, p, func(ctx context.Context) error {
		p.creation.follow(ctx)
		return e.tryPod(ctx, p)
	})
	p.creation.finish(err)
	if err == nil {
		e.discardUnclaimedPod(p)
	}
}

func (e *Engine) tryPod(caller context.Context, p *Pod) error {
	ctx, cancel := p.life.within(caller)
	defer cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, e.cfg.CreateTimeout,
		fmt.Errorf("creation took longer than %v: %w", e.cfg.CreateTimeout, context.DeadlineExceeded))
	defer stop()

	if err := deadline(ctx, e.buildPod(ctx, p)); err != nil {
		return e.discardPod(caller, p, err)
	}
	p.creation.announce()
	e.postPod(p, EventCreated) // before anybody can go on to the next event
	e.postPod(p, EventStarted)
	e.watchInfra(p)
	return nil
}

// buildPod is the making of a pod. It cleans nothing up: teardownPod does, whatever has been built.
func (e *Engine) buildPod(ctx context.Context, p *Pod) error {
	var result network.Result
	var infra oci.Process
	steps := []step{
		{"record", func() error { return record.Create(p.dir, p.Pod, p.Status()) }},
		{"namespaces", func() error { return e.Namespaces.Pin(ctx, e.pinRequest(p)) }},
		{"network", func() (err error) { result, err = e.attach(ctx, p); return err }},
		{"files", func() error { return e.writePodFiles(ctx, p, result.IPs) }},
		{"infra container", func() (err error) { infra, err = e.startInfra(ctx, p); return err }},
	}
	if err := runSteps(ctx, steps); err != nil {
		return err
	}
	return p.advance(record.PodReady, func(s *record.PodStatus) {
		s.Infra = infra
		for _, ip := range result.IPs {
			s.IPs = append(s.IPs, ip.String())
		}
	})
}

// step is one named part of a creation.
type step struct {
	name string
	do   func() error
}

// runSteps does the steps in order, up to the first that fails or the end of ctx.
func runSteps(ctx context.Context, steps []step) error {
	for _, s := range steps {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("before %s: %w", s.name, err)
		}
		operation.SetStage(ctx, s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return context.Cause(ctx)
}

// pinRequest says which namespaces p needs: its own but for those it shares with the node.
func (e *Engine) pinRequest(p *Pod) namespaces.Request {
	pins, opts := e.pins(p.ID), namespaceOptions(p.Config)
	r := namespaces.Request{Net: p.Netns, Sysctls: p.Config.GetLinux().GetSysctls()}
	if opts.GetIpc() != cri.NamespaceMode_NODE {
		r.IPC = pins.ipc
	}
	if !hostNetwork(p.Config) {
		r.UTS, r.Hostname = pins.uts, podHostname(p)
	}
	if uids, gids := userMappings(p.Config); uids != nil {
		r.User, r.UIDs, r.GIDs = pins.user, uids, gids
	}
	return r
}

func (e *Engine) attach(ctx context.Context, p *Pod) (network.Result, error) {
	if p.Netns == "" {
		return network.Result{}, nil
	}
	request, err := e.networkRequest(p)
	if err != nil {
		return network.Result{}, err
	}
	result, err := e.Network.Setup(ctx, request)
	if err != nil {
		return network.Result{}, err
	}
	return result, e.Namespaces.Sysctl(ctx, p.Netns, p.Config.GetLinux().GetSysctls())
}

// discardPod undoes a failed creation and returns why it failed. When the undo fails too, the pod stays, not ready
// and visible, for the kubelet to stop and remove.
func (e *Engine) discardPod(ctx context.Context, p *Pod, cause error) error {
	p.life.end(cause)
	undo := e.undo(ctx, func(ctx context.Context) error { return e.deletePod(ctx, p) })
	if undo == nil {
		return cause
	}
	e.podLog(p).WithError(undo).WithField("cause", cause).Error("pod sandbox could not be created, nor undone: it stays, not ready")
	e.store.freePodName(p)
	p.creation.claimed.Store(true)
	if err := p.observe(record.PodNotReady, func(s *record.PodStatus) { s.Reason = cause.Error() }); err != nil {
		e.podLog(p).WithError(err).Error("write status")
	}
	return errors.Join(cause, fmt.Errorf("undo: %w", undo))
}

// discardUnclaimedPod removes p after a while if no caller has come for it by then.
func (e *Engine) discardUnclaimedPod(p *Pod) {
	if p.creation.claimed.Load() {
		return
	}
	e.after(e.cfg.UnclaimedTimeout, func() {
		if !p.creation.abandoned() {
			return
		}
		e.podLog(p).Warn("nobody asked for the pod sandbox again, removing it")
		if err := e.RemovePod(e.life.ctx, p.ID); err != nil && !errdefs.IsNotFound(err) {
			e.podLog(p).WithError(err).Error("remove unclaimed pod sandbox")
		}
	})
}
