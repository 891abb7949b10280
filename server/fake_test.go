package server

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// recorder records the calls of a fake, and makes chosen ones fail.
type recorder struct {
	mu    sync.Mutex
	calls []string
	// fail is the error of a call by its name, e.g. "RunPod".
	fail map[string]error
	// on runs when a call arrives.
	on func(name string, args ...any)
}

func (r *recorder) call(name string, args ...any) error {
	r.mu.Lock()
	r.calls = append(r.calls, strings.TrimSpace(name+" "+short(args)))
	err, on := r.fail[name], r.on
	r.mu.Unlock()
	if on != nil {
		on(name, args...)
	}
	return err
}

// short formats the strings, numbers and durations among the arguments.
func short(args []any) string {
	var words []string
	for _, a := range args {
		switch a.(type) {
		case string, int, time.Duration, []string:
			words = append(words, fmt.Sprint(a))
		}
	}
	return strings.Join(words, " ")
}

func (r *recorder) log() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// fakeEngine has pods and containers as values; calls change them in a simplified way.
type fakeEngine struct {
	recorder
	pods       []record.PodView
	containers []record.ContainerView
	handlers   []sandbox.Handler
	network    error
	inUse      map[string][]string
	exec       oci.ExecResult
	// The last arguments of RunPod and CreateContainer.
	podConfig       *cri.PodSandboxConfig
	containerConfig *cri.ContainerConfig
	resources       *cri.LinuxContainerResources
	restore         sandbox.RestoreRequest
	// The usage by id.
	containerUsage map[string]usage.Container
	podUsage       map[string]usage.Pod
	writable       map[string]*image.FsUsage
	disk           image.Filesystem
	device         string
	overhead       *cri.LinuxContainerResources
	// Events sends events and returns eventsEnd; if that is nil, it waits for ctx.
	events    []Event
	eventsEnd error
}

func (e *fakeEngine) RunPod(_ context.Context, cfg *cri.PodSandboxConfig, handler string) (string, error) {
	e.podConfig = cfg
	return "newpod", e.call("RunPod", handler, cfg)
}

func (e *fakeEngine) StopPod(_ context.Context, id string) error { return e.call("StopPod", id) }

func (e *fakeEngine) RemovePod(_ context.Context, id string) error { return e.call("RemovePod", id) }

func (e *fakeEngine) CheckpointContainer(_ context.Context, id, location string, timeout time.Duration) error {
	return e.call("CheckpointContainer", id, location, timeout)
}

func (e *fakeEngine) CheckpointPod(_ context.Context, id, path string, containers []string) error {
	return e.call("CheckpointPod", id, path, containers)
}

func (e *fakeEngine) RestorePod(_ context.Context, r sandbox.RestoreRequest) (string, []string, error) {
	e.restore = r
	ids := []string{"new1", "new2"}[:len(r.Containers)]
	return "newpod", ids, e.call("RestorePod", r.Path, r.Handler, r.Pod, r.Containers[0])
}

func (e *fakeEngine) Pod(id string) (record.PodView, error) {
	return find(slices.Values(e.pods), id, func(p record.PodView) string { return p.ID })
}

func (e *fakeEngine) Pods() iter.Seq[record.PodView] { return slices.Values(e.pods) }

func (e *fakeEngine) CreateContainer(_ context.Context, podID string, cfg *cri.ContainerConfig) (string, error) {
	e.containerConfig = cfg
	return "newcontainer", e.call("CreateContainer", podID, cfg)
}

func (e *fakeEngine) StartContainer(_ context.Context, id string) error {
	return e.call("StartContainer", id)
}

func (e *fakeEngine) StopContainer(_ context.Context, id string, grace time.Duration) error {
	return e.call("StopContainer", id, grace)
}

func (e *fakeEngine) RemoveContainer(_ context.Context, id string) error {
	return e.call("RemoveContainer", id)
}

func (e *fakeEngine) UpdateContainer(_ context.Context, id string, r *cri.LinuxContainerResources) error {
	e.resources = r
	return e.call("UpdateContainer", id)
}

func (e *fakeEngine) ReopenLog(_ context.Context, id string) error { return e.call("ReopenLog", id) }

func (e *fakeEngine) ExecSync(
	_ context.Context, id string, cmd []string, timeout time.Duration,
) (oci.ExecResult, error) {
	return e.exec, e.call("ExecSync", id, cmd, timeout)
}

func (e *fakeEngine) Container(id string) (record.ContainerView, error) {
	return find(slices.Values(e.containers), id, func(c record.ContainerView) string { return c.ID })
}

func (e *fakeEngine) Containers() iter.Seq[record.ContainerView] { return slices.Values(e.containers) }

func (e *fakeEngine) ContainersOf(podID string) []record.ContainerView {
	var out []record.ContainerView
	for _, c := range e.containers {
		if c.PodID == podID {
			out = append(out, c)
		}
	}
	return out
}

func (e *fakeEngine) Events(ctx context.Context, send func(Event) error) error {
	for _, event := range e.events {
		if err := send(event); err != nil {
			return err
		}
	}
	if e.eventsEnd != nil {
		return e.eventsEnd
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (e *fakeEngine) ContainerUsage(_ context.Context, ids []string, _ usage.Want) map[string]usage.Container {
	return measuredOf(e.containerUsage, ids)
}

func (e *fakeEngine) PodUsage(_ context.Context, ids []string, _ usage.Want) map[string]usage.Pod {
	return measuredOf(e.podUsage, ids)
}

func measuredOf[U any](all map[string]U, ids []string) map[string]U {
	out := map[string]U{}
	for _, id := range ids {
		if u, ok := all[id]; ok {
			out[id] = u
		}
	}
	return out
}

func (e *fakeEngine) Writable(id string) *image.FsUsage { return e.writable[id] }

func (e *fakeEngine) Filesystem() (image.Filesystem, string) { return e.disk, e.device }

func (e *fakeEngine) UpdatePod(_ context.Context, id string, overhead, resources *cri.LinuxContainerResources) error {
	e.overhead, e.resources = overhead, resources
	return e.call("UpdatePod", id)
}

func (e *fakeEngine) LastOperations(string) []operation.Operation { return nil }

func (e *fakeEngine) Handlers() []sandbox.Handler { return e.handlers }

func (e *fakeEngine) NetworkReady() error { return e.network }

func (e *fakeEngine) InUse(imageID string) []string { return e.inUse[imageID] }

func find[T any](all iter.Seq[T], id string, idOf func(T) string) (found T, err error) {
	n := 0
	for one := range all {
		if strings.HasPrefix(idOf(one), id) {
			found, n = one, n+1
		}
	}
	switch n {
	case 0:
		return found, fmt.Errorf("%w: nothing has the id %q", errdefs.ErrNotFound, id)
	case 1:
		return found, nil
	}
	return found, fmt.Errorf("%w: id %q is ambiguous", errdefs.ErrInvalidArgument, id)
}

type fakeImages struct {
	recorder
	images []*image.Image
	pull   image.PullRequest
	usage  [2][]image.FsUsage
}

func (i *fakeImages) List(context.Context) ([]*image.Image, error) { return i.images, i.call("List") }

func (i *fakeImages) Resolve(_ context.Context, ref string) (*image.Image, error) {
	if err := i.call("Resolve", ref); err != nil {
		return nil, err
	}
	for _, img := range i.images {
		if img.ID == strings.TrimPrefix(ref, "sha256:") || slices.Contains(img.Tags, ref) ||
			slices.Contains(img.Digests, ref) {
			return img, nil
		}
	}
	return nil, fmt.Errorf("%w: image %q", errdefs.ErrNotFound, ref)
}

func (i *fakeImages) Pull(_ context.Context, r image.PullRequest) (*image.Image, error) {
	i.pull = r
	if err := i.call("Pull", r.Ref, r.Namespace); err != nil {
		return nil, err
	}
	return i.images[0], nil
}

func (i *fakeImages) Remove(_ context.Context, id string) error { return i.call("Remove", id) }

func (i *fakeImages) Usage(context.Context) (images, containers []image.FsUsage, err error) {
	return i.usage[0], i.usage[1], i.call("Usage")
}

type fakeNetwork struct{ recorder }

func (n *fakeNetwork) SetPodCIDR(_ context.Context, cidr string) error {
	return n.call("SetPodCIDR", cidr)
}

type fakeStreamer struct {
	recorder
	exec   *cri.ExecRequest
	attach *cri.AttachRequest
	ports  *cri.PortForwardRequest
}

func (s *fakeStreamer) Exec(_ string, r *cri.ExecRequest) (string, error) {
	s.exec = r
	return "http://exec", s.call("Exec", r.GetContainerId(), r.GetCmd())
}

func (s *fakeStreamer) Attach(_ string, r *cri.AttachRequest) (string, error) {
	s.attach = r
	return "http://attach", s.call("Attach", r.GetContainerId())
}

func (s *fakeStreamer) PortForward(_ string, r *cri.PortForwardRequest) (string, error) {
	s.ports = r
	return "http://ports", s.call("PortForward", r.GetPodSandboxId())
}
