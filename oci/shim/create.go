package shim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// Create writes the bundle, starts the stdio process and, for a pod's first container, the shim, and has the shim
// create the container, which then waits for Start. The root filesystem is mounted already: the shim gets no mounts.
//
// On failure, or when ctx or CreateTimeout ends, every process that it started has been killed. The bundle and the
// runtime's state remain: the caller must call Delete after any error but errdefs.ErrAlreadyExists. A
// command that cannot be run is an oci.ErrCommand.
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
		return process.Process{}, errors.Join(fmt.Errorf("create container: %w", err),
			r.undoCreate(b, contextEnd(ctx) != nil))
	}
	return p, nil
}

// creation is a container that is being created.
type creation struct {
	req oci.CreateRequest
	rec record
	// pod is the first process of the pod whose shim serves the container, none if the container has its own shim.
	pod     process.Process
	options *anypb.Any
}

// chooseShim returns a record with the shim that serves the container: the pod's if it has one, otherwise its own. It
// also returns the pod's first process.
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

// ownCgroup is the container's cgroupsPath if podd removes its cgroups: systemd removes its scopes itself.
func ownCgroup(s *specs.Spec) string {
	if s.Linux == nil || !strings.HasPrefix(s.Linux.CgroupsPath, "/") {
		return ""
	}
	return s.Linux.CgroupsPath
}

// The annotations by which runtimes distinguish the container that holds a pod's sandbox from those that run in it.
const (
	annotationType    = "io.kubernetes.cri.container-type"
	annotationSandbox = "io.kubernetes.cri.sandbox-id"
)

// withSandboxAnnotations returns the spec with the sandbox of the container. The annotations of the spec are
// overwritten: they must agree with the shim that is called.
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
	cfg := stdio.Config{
		Log: c.req.Log, Terminal: c.req.Terminal, Stdin: c.req.Stdin, StdinOnce: c.req.StdinOnce,
		Events: c.pod == (process.Process{}),
	}
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

// startShim starts the container's own shim and verifies its process.
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

// createTask has the shim create the container and returns its first process: the one that the shim reports if it is
// plausible, otherwise the shim.
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
	stop := driver.WatchInit(c.req.Spec, func() process.Process { return c.rec.Shim })
	if err := stop(conn.callUntil(ctx, "Create", request, response)); err != nil {
		return process.Process{}, runtimeError(ctx, err)
	}
	return ownProcess(response.GetPid(), c.rec.Shim), nil
}

// ownProcess is the process of that pid if it descends from the shim, otherwise the shim: the pid is used to find
// namespaces and is killed in the end, so it must not be another process.
func ownProcess(pid uint32, shim process.Process) process.Process {
	p, err := process.Identify(int(pid))
	if pid <= 1 || err != nil || !p.DescendsFrom(shim) {
		return shim
	}
	return p
}

// runtimeError classifies the error of a shim by its text, which is that of the runtime below it, and by the kinds of
// its own refusals. Errors of the call itself, and of the end of its ctx, are returned as they are.
func runtimeError(ctx context.Context, err error) error {
	if ended := contextEnd(ctx); ended != nil && errors.Is(err, ended) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errdefs.IsUnavailable(err) {
		return err
	}
	text := driver.Complaint([]byte(err.Error()))
	failure := driver.Failure("shim", text)
	kind := errdefs.Resolve(err)
	refusals := []error{errdefs.ErrInvalidArgument, errdefs.ErrFailedPrecondition, errdefs.ErrNotImplemented}
	said := errors.Is(failure, oci.ErrCommand) || !errdefs.IsUnknown(errdefs.Resolve(failure))
	if said || !slices.Contains(refusals, kind) {
		return failure
	}
	text = strings.TrimPrefix(strings.TrimSuffix(text, ": "+kind.Error()), kind.Error()+": ")
	return fmt.Errorf("shim: %s: %w", text, kind)
}

// undoCreate kills the processes of a failed creation. The container's own shim is killed without being called first
// if it was out of time already.
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
