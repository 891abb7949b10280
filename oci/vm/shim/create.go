package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/vm/guest/env"
	"github.com/podd-project/podd/oci/vm/jail"
)

// configLimit is the size of the largest config.json, in bytes.
const configLimit = 16 << 20

// Create creates a container; the first one boots the machine.
func (s *Service) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	response, err := s.create(ctx, r)
	return response, errgrpc.ToGRPC(err)
}

func (s *Service) create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if err := checkRequest(r); err != nil {
		return nil, err
	}
	spec, err := readSpec(r.GetBundle())
	if err != nil {
		return nil, err
	}
	select {
	case s.creating <- struct{}{}:
		defer func() { <-s.creating }()
	case <-ctx.Done():
		return nil, fmt.Errorf("the pod still creates another container: %w", ctx.Err())
	}
	p, err := s.current()
	if err != nil {
		if p, err = s.createPod(ctx, r, spec); err != nil {
			return nil, err
		}
	}
	if err := p.add(r.GetID()); err != nil {
		return nil, err
	}
	if err := p.createContainer(ctx, r, spec); err != nil {
		return nil, errors.Join(err, p.remove(r.GetID()))
	}
	return &task.CreateTaskResponse{Pid: p.pid()}, nil
}

// createPod boots the machine of a pod.
func (s *Service) createPod(ctx context.Context, r *task.CreateTaskRequest, spec *specs.Spec) (*pod, error) {
	o, err := parseOptions(r.GetOptions())
	if err != nil {
		return nil, err
	}
	p, err := s.boot(ctx, bootRequest{id: r.GetID(), bundle: r.GetBundle(), spec: spec, options: o})
	if err != nil {
		return nil, fmt.Errorf("start the virtual machine: %w", err)
	}
	s.mu.Lock()
	s.pod = p
	s.mu.Unlock()
	log.G(ctx).WithField("pid", p.pid()).Info("the virtual machine has started")
	return p, nil
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkRequest(r *task.CreateTaskRequest) error {
	switch {
	case !validID.MatchString(r.GetID()):
		return invalid("container id %q", r.GetID())
	case r.GetCheckpoint() != "" || r.GetParentCheckpoint() != "":
		return invalid("a virtual machine cannot be restored from a checkpoint")
	}
	return nil
}

// readSpec reads config.json of a bundle.
func readSpec(bundle string) (*specs.Spec, error) {
	path := filepath.Join(bundle, "config.json")
	if info, err := os.Stat(path); err == nil && info.Size() > configLimit {
		return nil, invalid("%s has %d bytes, more than %d", path, info.Size(), configLimit)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{}
	if err := json.Unmarshal(data, spec); err != nil {
		return nil, invalid("%s: %v", path, err)
	}
	if spec.Process == nil || spec.Root == nil || spec.Linux == nil {
		return nil, invalid("%s: process, root and linux are required", path)
	}
	if !filepath.IsAbs(spec.Root.Path) {
		spec.Root.Path = filepath.Join(bundle, spec.Root.Path)
	}
	return spec, nil
}

// createContainer gives the guest the files of a container and has it create the container.
func (p *pod) createContainer(ctx context.Context, r *task.CreateTaskRequest, spec *specs.Spec) error {
	t, err := translate(r.GetID(), spec, p.infra())
	if err != nil {
		return err
	}
	if err := p.jail.AddContainer(r.GetID()); err != nil {
		return err
	}
	if err := p.shareFiles(r, spec.Root.Path, &t); err != nil {
		return err
	}
	config, err := json.Marshal(t.spec)
	if err != nil {
		return err
	}
	if err := p.jail.WriteConfig(r.GetID(), config); err != nil {
		return err
	}
	return p.createInGuest(ctx, r)
}

// createTimeout is how long the guest may take to create a container, with its streams. Its runtime, which needs less
// than a second, has taken more than half a minute in an emulated machine on a busy node.
const createTimeout = 90 * time.Second

// createInGuest has the guest create a container from its directory in the shared one, within createTimeout. After an
// error it takes callTimeout more at most, to give up the streams.
func (p *pod) createInGuest(ctx context.Context, r *task.CreateTaskRequest) error {
	runtime, err := typeurl.MarshalAnyToProto(&options.Options{BinaryName: env.Runtime, Root: env.RuntimeRoot})
	if err != nil {
		return err
	}
	request := &task.CreateTaskRequest{
		ID: r.GetID(), Bundle: jail.Container(r.GetID()), Terminal: r.GetTerminal(), Options: runtime,
	}
	ctx, cancel := context.WithTimeout(guestContext(ctx), createTimeout)
	defer cancel()
	k := processKey{id: r.GetID()}
	streams, err := p.connectStreams(ctx, k, hostStreams{r.GetStdin(), r.GetStdout(), r.GetStderr()})
	if err == nil {
		request.Stdin, request.Stdout, request.Stderr = streams.stdin, streams.stdout, streams.stderr
		err = p.createTask(ctx, request)
	}
	if err != nil {
		p.releasePipes(ctx, k)
	}
	return err
}

// shareFiles gives the guest the files of a container; root is the path of its root file system on the host.
func (p *pod) shareFiles(r *task.CreateTaskRequest, root string, t *translated) (err error) {
	unmount, err := mountRoot(r.GetRootfs(), root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmount()) }()
	for _, w := range t.wanted {
		given, err := p.jail.Share(r.GetID(), w.source)
		if err != nil {
			return err
		}
		t.place(w, given)
	}
	return nil
}

// createTask has the guest's runtime create a container.
func (p *pod) createTask(ctx context.Context, r *task.CreateTaskRequest) error {
	response, err := p.tasks.Create(ctx, r)
	if err != nil {
		return fromGuest(err)
	}
	p.noteInfra(r.GetID(), response.GetPid())
	return nil
}

// noteInfra remembers the first process of the infra container, whose PID namespace other containers may join.
func (p *pod) noteInfra(id string, pid uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == p.id {
		p.infraPid = pid
	}
}

// infra returns the pids of the infra container, 0 in the guest before it exists.
func (p *pod) infra() infraPids {
	p.mu.Lock()
	defer p.mu.Unlock()
	return infraPids{guest: p.infraPid, host: p.pid()}
}
