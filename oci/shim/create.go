package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim/stdio"
)

// Create writes the bundle, starts the keeper of the output and, for a pod's first container, the shim, and has the shim
// create the container, which then waits for Start. The root filesystem is mounted already: the shim gets no mounts.
//
// When it fails, or ctx or CreateTimeout ends it, every process that it started has been killed; the bundle and the
// runtime's state remain for Delete, which the caller owes for any outcome but ErrAlreadyExists and
// ErrInvalidArgument. A command that cannot be run is an oci.ErrCommand.
func (r *Runtime) Create(ctx context.Context, req oci.CreateRequest) (process.Process, error) {
	b, err := r.bundle(req.ID)
	if err != nil {
		return process.Process{}, err
	}
	if req.PodID != "" {
		if err := driver.CheckID(req.PodID); err != nil {
			return process.Process{}, err
		}
	}
	if _, err := r.lookup(r.cfg.Path); err != nil {
		return process.Process{}, err
	}
	options, err := r.options()
	if err != nil {
		return process.Process{}, err
	}
	rec, pod := r.chooseShim(req)
	if err := b.Create(withSandboxAnnotations(req, rec.Owner)); err != nil {
		return process.Process{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CreateTimeout)
	defer cancel()
	p, err := r.createContainer(ctx, b, creation{req: req, rec: rec, pod: pod, options: options})
	if err != nil {
		return process.Process{}, errors.Join(fmt.Errorf("create container: %w", err), r.undoCreate(b, contextEnd(ctx) != nil))
	}
	return p, nil
}

// creation is a container that is being made.
type creation struct {
	req oci.CreateRequest
	rec record
	// pod is the first process of the pod whose shim serves the container, none if the container has a shim of its own.
	pod     process.Process
	options *anypb.Any
}

// place decides which shim serves the container: the pod's if it has one, else one of its own. It returns the pod's first
// process, too.
func (r *Runtime) chooseShim(req oci.CreateRequest) (rec record, pod process.Process) {
	rec = record{Owner: req.ID, Cgroup: ownCgroup(req.Spec)}
	if req.PodID == "" || req.PodID == req.ID {
		return rec, pod
	}
	b, err := r.bundle(req.PodID)
	if err != nil {
		return rec, pod
	}
	infra, err := b.load()
	if err != nil || infra.Address == "" || infra.Init == (process.Process{}) {
		return rec, pod
	}
	rec.Owner, rec.Address, rec.Protocol, rec.Shim = infra.Owner, infra.Address, infra.Protocol, infra.Shim
	return rec, infra.Init
}

// ownCgroup is the container's cgroupsPath if its groups are ours to clean up: systemd removes its scopes by itself.
func ownCgroup(s *specs.Spec) string {
	if s.Linux == nil || !strings.HasPrefix(s.Linux.CgroupsPath, "/") {
		return ""
	}
	return s.Linux.CgroupsPath
}

// The annotations by which runtimes tell the container that holds a pod's sandbox from those that go into it.
const (
	annotationType    = "io.kubernetes.cri.container-type"
	annotationSandbox = "io.kubernetes.cri.sandbox-id"
)

// annotated is the spec that says whose sandbox the container is in. These two are set here, whatever the spec says:
// they must agree with which shim is asked.
func withSandboxAnnotations(req oci.CreateRequest, owner string) *specs.Spec {
	s := *req.Spec
	s.Annotations = maps.Clone(s.Annotations)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotationSandbox] = owner
	s.Annotations[annotationType] = "sandbox"
	if owner != req.ID {
		s.Annotations[annotationType] = "container"
	}
	return &s
}

func (r *Runtime) createContainer(ctx context.Context, b bundle, c creation) (process.Process, error) {
	cfg := stdio.Config{LogPath: c.req.LogPath, Terminal: c.req.Terminal, Stdin: c.req.Stdin, StdinOnce: c.req.StdinOnce, Events: c.pod == (process.Process{})}
	if err := stdio.Prepare(b.Dir(), cfg); err != nil {
		return process.Process{}, err
	}
	var err error
	if c.rec.Stdio, err = r.startStdio(ctx, b); err != nil {
		return process.Process{}, err
	}
	if err := b.save(c.rec); err != nil {
		return process.Process{}, err
	}
	if c.pod == (process.Process{}) {
		if err := r.startShim(ctx, b, &c); err != nil {
			return process.Process{}, err
		}
	}
	if c.rec.Init, err = r.createTask(ctx, b, c); err != nil {
		return process.Process{}, err
	}
	c.rec.Shared = c.rec.Init == c.pod
	return c.rec.Init, b.save(c.rec)
}

// startShim starts the container's own shim and makes sure of its process.
func (r *Runtime) startShim(ctx context.Context, b bundle, c *creation) error {
	e, err := r.bootShim(ctx, b, c.options)
	if err != nil {
		return err
	}
	c.rec.Address, c.rec.Protocol = e.address, e.version
	if err := b.save(c.rec); err != nil {
		return err
	}
	conn, err := r.dialShim(ctx, e)
	if err != nil {
		return err
	}
	if c.rec.Shim, err = conn.identify(ctx, b); err != nil {
		return err
	}
	return b.save(c.rec)
}

// createTask has the shim create the container and returns its first process, if it names one that can be the
// container's, else the shim's.
func (r *Runtime) createTask(ctx context.Context, b bundle, c creation) (process.Process, error) {
	conn, err := r.connectShim(ctx, c.rec)
	if err != nil {
		return process.Process{}, err
	}
	request := &task.CreateTaskRequest{
		ID: b.ID(), Bundle: b.Dir(), Options: c.options, Terminal: c.req.Terminal, Stdout: b.File(stdio.Stdout),
	}
	if !c.req.Terminal {
		request.Stderr = b.File(stdio.Stderr)
	}
	if c.req.Stdin {
		request.Stdin = b.File(stdio.Stdin)
	}
	response := &task.CreateTaskResponse{}
	if err := conn.callUntil(ctx, "Create", request, response); err != nil {
		return process.Process{}, runtimeError(err)
	}
	return ownProcess(response.GetPid(), c.rec.Shim), nil
}

// ownProcess is the process of that pid if it descends from the shim. A shim is not believed that names another's: the
// pid is used to find namespaces and is killed in the end.
func ownProcess(pid uint32, shim process.Process) process.Process {
	p, err := process.Identify(int(pid))
	if pid <= 1 || err != nil || !p.DescendsFrom(shim) {
		return shim
	}
	return p
}

// complaint classifies the error of a shim by its words, which are those of the runtime below it. Errors of the call
// itself are left alone.
func runtimeError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errdefs.IsUnavailable(err) {
		return err
	}
	return driver.Failure("shim", driver.Complaint([]byte(err.Error())))
}

// abandon kills what a creation that failed has started. The container's own shim is not asked first when it was out of
// time already.
func (r *Runtime) undoCreate(b bundle, late bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), driver.UndoTimeout)
	defer cancel()
	rec, err := b.load()
	if err != nil {
		return errors.Join(killBundleProcesses(ctx, b), killStdio(ctx, b, rec))
	}
	if late && rec.Owner == b.ID() {
		if err := errors.Join(rec.Shim.Kill(ctx), killBundleProcesses(ctx, b)); err != nil {
			return err
		}
	}
	return r.endContainer(ctx, b, rec)
}
