package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/logfile"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/convert"
	"github.com/podd-project/podd/sandbox/files"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/snapshot"
)

// RunPod creates a pod sandbox and returns its id once it is ready. If the caller gives up before, the creation
// continues, and a call with the same config joins it. A ready pod of that name is returned; one with another config is
// errdefs.ErrAlreadyExists.
func (e *Engine) RunPod(ctx context.Context, config *cri.PodSandboxConfig, handler string) (string, error) {
	chosen, err := e.handlers.Choose(config, handler)
	if err != nil {
		return "", err
	}
	r, err := e.newPodRecord(config, chosen)
	if err != nil {
		return "", err
	}
	p, err := e.startPodCreation(ctx, r, chosen, nil)
	if err != nil {
		return "", err
	}
	return p.ID, p.creation.Await(ctx, "pod sandbox")
}

// msgReplaced is logged when an object that no caller has heard of gives its name to another.
const msgReplaced = "requested again with another configuration, removing the first"

// startPodCreation finds the pod that r requests or starts to create it. source is the checkpoint of a pod to restore.
func (e *Engine) startPodCreation(
	ctx context.Context, r record.Pod, chosen *handler.Choice, source *snapshot.Snapshot,
) (*Pod, error) {
	p := e.newPod(r, record.PodStatus{State: record.PodCreating}, chosen)
	p.source = source
	other, added, err := lifecycle.Register(e.store.pods, p,
		func(other *Pod) error { return checkSamePod(other, p) },
		func(other *Pod) error {
			other.log().Info(msgReplaced)
			return e.RemovePod(ctx, other.ID)
		})
	if !added {
		p.life.End(nil)
		host.ReleaseLabels(p.Labels)
		return other, err
	}
	if p.release, err = charge(p.ID, p.cost(e.deps.Budgets)); err == nil {
		if !e.work.Go(func() { p.creation.Run(ctx, e.podPlan(p)) }) {
			err = errClosing
		}
	}
	if err != nil {
		p.life.End(err)
		e.forgetPod(p)
		p.creation.Finish(err)
	}
	return p, nil
}

// forgetPod removes p, of which nothing is left, from the engine.
func (e *Engine) forgetPod(p *Pod) {
	host.ReleaseLabels(p.Labels)
	e.store.pods.Remove(p)
	p.release()
}

func (e *Engine) newPodRecord(config *cri.PodSandboxConfig, chosen *handler.Choice) (record.Pod, error) {
	features := chosen.Runtime.Features()
	infra, err := chosen.Config.NeedsInfra(config, features)
	if err != nil {
		return record.Pod{}, fmt.Errorf("runtime handler %q: %w", chosen.Name, err)
	}
	labels, err := host.Labels(config.GetLinux().GetSecurityContext().GetSelinuxOptions())
	if err != nil {
		return record.Pod{}, err
	}
	r := record.Pod{
		ID: record.NewID(), CreatedAt: time.Now(), Config: config,
		RequestedHandler: chosen.Requested, Handler: chosen.Name,
		Labels: labels, BootID: e.node.BootID, Infra: infra, OwnKernel: features.OwnKernel,
	}
	if !convert.HostNetwork(config) {
		r.Netns = e.paths.Netns(r.ID)
	}
	return r, nil
}

// checkSamePod returns errdefs.ErrAlreadyExists unless have, which has the name of want, is the answer to its request.
func checkSamePod(have, want *Pod) error {
	state := have.Status().State
	if have.RequestedHandler == want.RequestedHandler && have.Snapshot == want.Snapshot &&
		proto.Equal(have.Config, want.Config) && (state == record.PodCreating || state == record.PodReady) {
		return nil
	}
	m := want.Config.GetMetadata()
	return fmt.Errorf(
		"%w: pod name %s/%s attempt %d is taken by sandbox %s (%s), which has another configuration or is not ready: "+
			"remove it, or use another attempt",
		errdefs.ErrAlreadyExists, m.GetNamespace(), m.GetName(), m.GetAttempt(), have.ID, state,
	)
}

func (e *Engine) podPlan(p *Pod) lifecycle.Plan {
	return lifecycle.Plan{
		What: "pod sandbox", Log: p.log(), Life: p.life,
		Timeout: e.cfg.Load().CreateTimeout + p.stageTime(), Unclaimed: unclaimedTime,
		Work: &e.work, Daemon: e.life.Context(),
		Operation: func(ctx context.Context, do func(context.Context) error) error {
			return e.onPod(ctx, p.creationVerb(), p, do)
		},
		Build:   func(ctx context.Context) error { return e.buildPod(ctx, p) },
		Discard: func(ctx context.Context, cause error) error { return e.discardPod(ctx, p, cause) },
		Created: func() {
			p.post(lifecycle.Created)
			p.post(lifecycle.Started)
			e.watchInfra(p)
		},
		Remove: func(ctx context.Context) error { return e.RemovePod(ctx, p.ID) },
	}
}

func (p *Pod) creationVerb() string {
	if p.Snapshot != "" {
		return operation.RestorePod
	}
	return operation.RunPod
}

// buildPod creates a pod. It undoes nothing: teardownPod does, however much has been built.
func (e *Engine) buildPod(ctx context.Context, p *Pod) error {
	var result network.Result
	var infra oci.Process
	var logs logfile.Dir
	var saved *record.Sync
	defer func() { awaitSync(ctx, saved) }()
	steps := []step{
		{"record", func() (err error) {
			saved, err = record.Create(e.deps.Records, p.dir, p.Pod, p.Status(), record.ContainersDir)
			return err
		}},
		{"namespaces", func() error {
			return e.deps.Namespaces.Pin(ctx, e.pinRequest(p))
		}},
		{"network", func() (err error) { result, err = e.attach(ctx, p); return err }},
		{"files", func() (err error) {
			if logs, err = p.noteLogDir(); err != nil {
				return err
			}
			return e.files.Write(ctx, p.ID, p.filesRequest(result.IPs))
		}},
		{"images", p.stageImages(ctx, e.paths.Images(p.ID))},
		{"shared memory", p.restoreShm(ctx, e)},
		{"infra container", func() (err error) { infra, err = e.startInfra(ctx, p); return err }},
		{"plugins", func() error {
			seen := p.View()
			seen.Status.Infra, seen.Status.IPs = infra, convert.Addresses(result.IPs)
			return e.deps.Plugins.RunPod(ctx, seen)
		}},
		{stageSync, func() error { return saved.Wait() }},
	}
	if err := runSteps(ctx, steps); err != nil {
		return err
	}
	return p.advance(record.PodReady, func(s *record.PodStatus) {
		s.Infra, s.LogDir, s.IPs = infra, logs, convert.Addresses(result.IPs)
	})
}

// filesRequest returns the input for the files of p.
func (p *Pod) filesRequest(ips []netip.Addr) files.Request {
	return files.Request{Config: p.Config, Hostname: p.hostname(), IPs: ips, MountLabel: p.Labels.Mount}
}

// hostname returns the hostname in the pod's UTS namespace.
func (p *Pod) hostname() string { return cmp.Or(p.Config.GetHostname(), p.ID[:12]) }

// pinRequest lists the namespaces of p, except those that it shares with the node, and their sysctls.
func (e *Engine) pinRequest(p *Pod) namespaces.Request {
	pins, opts := e.paths.Pins(p.ID), convert.NamespaceOptions(p.Config)
	r := namespaces.Request{
		Net: p.Netns, Claim: e.paths.NetnsClaim(p.ID, p.Netns), Sysctls: p.Config.GetLinux().GetSysctls(),
	}
	if opts.GetIpc() != cri.NamespaceMode_NODE {
		r.IPC = pins.IPC
	}
	if !convert.HostNetwork(p.Config) {
		r.UTS, r.Hostname = pins.UTS, p.hostname()
	}
	if uids, gids := convert.UserMappings(p.Config); uids != nil {
		r.User, r.UIDs, r.GIDs = pins.User, uids, gids
	}
	return r.WithDefaultSysctls(e.cfg.Load().DefaultSysctls)
}

func (e *Engine) attach(ctx context.Context, p *Pod) (network.Result, error) {
	if p.Netns == "" {
		return network.Result{}, nil
	}
	request, err := e.networkRequest(p)
	if err != nil {
		return network.Result{}, err
	}
	result, err := e.deps.Network.Setup(ctx, request)
	if err != nil {
		return network.Result{}, err
	}
	return result, e.deps.Namespaces.Sysctl(ctx, p.Netns, e.pinRequest(p).Sysctls)
}

func (e *Engine) networkRequest(p *Pod) (network.Request, error) {
	m, dns := p.Config.GetMetadata(), p.Config.GetDnsConfig()
	bandwidth, err := convert.Bandwidth(p.Config.GetAnnotations())
	if err != nil {
		return network.Request{}, err
	}
	return network.Request{
		PodID: p.ID, PodName: m.GetName(), PodNamespace: m.GetNamespace(), PodUID: m.GetUid(),
		Netns: p.Netns, Ports: convert.PortMappings(p.Config.GetPortMappings()),
		DNS:        network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()},
		Bandwidth:  bandwidth,
		ConfDir:    p.handler.Config().CNIConfDir,
		CgroupPath: p.Config.GetLinux().GetCgroupParent(),
	}, nil
}

// discardPod undoes a failed creation and returns its cause. If the undo fails too, the pod stays, not ready and
// listed, for the kubelet to stop and remove.
func (e *Engine) discardPod(ctx context.Context, p *Pod, cause error) error {
	p.life.End(cause)
	operation.MarkFailed(ctx)
	err := undo(ctx, e, func(ctx context.Context) error { return e.deletePod(ctx, p) })
	if err == nil {
		return cause
	}
	p.log().WithError(err).WithField("cause", cause).
		Error("failed to create the pod sandbox and to undo its creation, it stays not ready")
	e.store.pods.FreeName(p)
	p.creation.Claim()
	p.markNotReady(cause.Error())
	return errors.Join(cause, fmt.Errorf("undo: %w", err))
}
