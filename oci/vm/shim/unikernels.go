package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/podd-project/podd/oci/vm/image"
	"github.com/podd-project/podd/oci/vm/kernel"
	"github.com/podd-project/podd/oci/vm/vmm"
)

// unikernels serves a pod whose containers' images are kernels: a container is a machine without an agent, one at a
// time. The infra container is the pod's cgroup and network, and runs nothing. Every process that it reports is the
// shim: a container has none of the host before it is started.
type unikernels struct {
	shutdown shutdown.Service

	// changing serialises what creates, starts and deletes; mu protects the fields.
	changing sync.Mutex
	mu       sync.Mutex
	// infra is the spec of the infra container, nil before; options are the handler's, leaveCgroup undoes joinCgroup.
	infra       *specs.Spec
	infraID     string
	options     Options
	leaveCgroup func() error
	members     map[string]*unikernel
}

var _ task.TTRPCTaskService = (*unikernels)(nil)

func newUnikernels(stop shutdown.Service) *unikernels {
	return &unikernels{shutdown: stop, members: map[string]*unikernel{}}
}

// member returns a container, errdefs.ErrNotFound if there is none, and for a command, of which there are none.
func (s *unikernels) member(id, execID string) (*unikernel, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.members[id]
	if u == nil || execID != "" {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "container %s, command %q", id, execID)
	}
	return u, nil
}

// Create creates a container.
func (s *unikernels) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	output, err := openOutput(r.GetStdout(), r.GetStderr())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	u, err := s.create(r)
	if err != nil {
		output.Close()
		return nil, errgrpc.ToGRPC(err)
	}
	u.output = output
	s.mu.Lock()
	s.members[r.GetID()] = u
	s.mu.Unlock()
	log.G(ctx).WithField("container", r.GetID()).Info("the unikernel is created")
	return &task.CreateTaskResponse{Pid: uint32(shimPid())}, nil
}

func (s *unikernels) create(r *task.CreateTaskRequest) (*unikernel, error) {
	if err := checkRequest(r); err != nil {
		return nil, err
	}
	spec, err := readSpec(r.GetBundle())
	if err != nil {
		return nil, err
	}
	if s.infra == nil {
		return s.createInfra(r, spec)
	}
	if err := s.checkTurn(r.GetID()); err != nil {
		return nil, err
	}
	if err := refuseForUnikernel(r, spec); err != nil {
		return nil, err
	}
	return s.createUnikernel(r, spec)
}

// createInfra makes the parts that the pod's machines share.
func (s *unikernels) createInfra(r *task.CreateTaskRequest, spec *specs.Spec) (*unikernel, error) {
	o, err := parseOptions(r.GetOptions())
	if err != nil {
		return nil, err
	}
	if err := refuseSysctls(spec.Linux.Sysctl); err != nil {
		return nil, err
	}
	if _, err := networkNamespace(spec); err != nil {
		return nil, err
	}
	leave, err := joinCgroup(spec.Linux.CgroupsPath)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.infra, s.infraID, s.options, s.leaveCgroup = spec, r.GetID(), o, leave
	return &unikernel{id: r.GetID(), ended: make(chan struct{})}, nil
}

// checkTurn returns an error while another container has the pod's network.
func (s *unikernels) checkTurn(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[id] != nil {
		return fmt.Errorf("container %s: %w", id, errdefs.ErrAlreadyExists)
	}
	for other, u := range s.members {
		if other != s.infraID && !u.hasEnded() {
			return fmt.Errorf("%w: a pod of a unikernel has one machine, and so one container at a time: %s has not ended",
				errdefs.ErrFailedPrecondition, other)
		}
	}
	return s.checkInfra()
}

// checkInfra returns an error when the infra container has ended: the end of the pod. The caller holds mu.
func (s *unikernels) checkInfra() error {
	if infra := s.members[s.infraID]; infra == nil || infra.hasEnded() {
		return fmt.Errorf("%w: the pod has ended", errdefs.ErrFailedPrecondition)
	}
	return nil
}

// createUnikernel opens and checks the files of the image. Nothing of it runs before the start.
func (s *unikernels) createUnikernel(r *task.CreateTaskRequest, spec *specs.Spec) (_ *unikernel, err error) {
	if len(spec.Process.Args) == 0 {
		return nil, invalid("no arguments: the first one is the path of the kernel in the image")
	}
	size := annotatedSize(s.infra)
	u := &unikernel{
		id: r.GetID(), bundle: r.GetBundle(), arguments: spec.Process.Args[1:], size: size,
		memory: s.options.size(size.memory), ended: make(chan struct{}),
	}
	if u.unmount, err = mountRoot(r.GetRootfs(), spec.Root.Path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			u.release()
		}
	}()
	path := spec.Process.Args[0]
	if !filepath.IsAbs(path) {
		path = filepath.Join(spec.Process.Cwd, path)
	}
	if u.files, err = kernel.Open(spec.Root.Path, path, int64(u.memory)<<20); err != nil {
		return nil, err
	}
	if err := s.checkKernel(u); err != nil {
		return nil, err
	}
	return u, nil
}

// checkKernel refuses a kernel that the driver cannot boot, or must not run.
func (s *unikernels) checkKernel(u *unikernel) error {
	if s.options.Driver == vmm.QEMU {
		return kernel.CheckBootable(u.files.Kernel)
	}
	if err := kernel.CheckVariables(u.arguments); err != nil {
		return err
	}
	return kernel.CheckSame(u.files.Kernel, filepath.Join(s.options.Images, vmm.UML, image.KernelFile))
}

// Start boots the machine of a container.
func (s *unikernels) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	u, err := s.member(r.GetID(), r.GetExecID())
	if err != nil {
		return nil, err
	}
	if err := s.checkStart(u); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	if u.id == s.infraID {
		u.run(nil)
	} else if err := s.boot(u); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("start the virtual machine: %w", err))
	}
	return &task.StartResponse{Pid: uint32(shimPid())}, nil
}

// checkStart returns an error unless a container can be started.
func (s *unikernels) checkStart(u *unikernel) error {
	if status := u.status(); status != types.Status_CREATED {
		return fmt.Errorf("%w: container %s is not created but %s", errdefs.ErrFailedPrecondition, u.id, status)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkInfra()
}

// State returns the state of a container.
func (s *unikernels) State(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	u, err := s.member(r.GetID(), r.GetExecID())
	if err != nil {
		return nil, err
	}
	out := &task.StateResponse{ID: u.id, Pid: uint32(shimPid()), Status: u.status()}
	if out.Status == types.Status_STOPPED {
		out.ExitStatus, out.ExitedAt = u.exit()
	}
	return out, nil
}

// Wait returns when a container has ended.
func (s *unikernels) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	u, err := s.member(r.GetID(), r.GetExecID())
	if err != nil {
		return nil, err
	}
	select {
	case <-u.ended:
		out := &task.WaitResponse{}
		out.ExitStatus, out.ExitedAt = u.exit()
		return out, nil
	case <-ctx.Done():
		return nil, errgrpc.ToGRPC(ctx.Err())
	}
}

// Kill ends the machine: at once with SIGKILL, and with every other signal by asking it (vmm.Machine.PowerDown). The
// end of the infra container ends all.
func (s *unikernels) Kill(_ context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	u, err := s.member(r.GetID(), r.GetExecID())
	if err != nil {
		return nil, err
	}
	if u.hasEnded() {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "container %s: process already finished", u.id)
	}
	if u.id == s.infraID {
		s.endAll()
		return &emptypb.Empty{}, nil
	}
	if err := s.stop(u, syscall.Signal(r.GetSignal())); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return &emptypb.Empty{}, nil
}

// stop ends a container. One that is being started has its machine first.
func (s *unikernels) stop(u *unikernel, signal syscall.Signal) error {
	if u.status() == types.Status_CREATED {
		s.changing.Lock()
		defer s.changing.Unlock()
	}
	return u.kill(signal)
}

// endAll ends the infra container and every machine. The infra container comes first: one that is created while the
// others are ended is then not started.
func (s *unikernels) endAll() {
	s.mu.Lock()
	infra := s.members[s.infraID]
	s.mu.Unlock()
	if infra != nil {
		_ = s.stop(infra, syscall.SIGKILL)
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.members))
	s.mu.Unlock()
	for _, u := range all {
		_ = s.stop(u, syscall.SIGKILL)
	}
}

// Delete deletes a container that has ended, or was not started.
func (s *unikernels) Delete(_ context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	u, err := s.member(r.GetID(), r.GetExecID())
	if err != nil {
		return nil, err
	}
	switch u.status() {
	case types.Status_RUNNING:
		return nil, errgrpc.ToGRPCf(errdefs.ErrFailedPrecondition, "container %s is running", u.id)
	case types.Status_CREATED:
		_ = u.kill(syscall.SIGKILL)
	}
	s.mu.Lock()
	delete(s.members, u.id)
	s.mu.Unlock()
	out := &task.DeleteResponse{Pid: uint32(shimPid())}
	out.ExitStatus, out.ExitedAt = u.exit()
	return out, nil
}

// Update refuses limits above the size of the machine. Smaller ones hold in the pod's cgroup.
func (s *unikernels) Update(_ context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	u, err := s.member(r.GetID(), "")
	if err != nil {
		return nil, err
	}
	var resources specs.LinuxResources
	if err := json.Unmarshal(r.GetResources().GetValue(), &resources); err != nil {
		return nil, errgrpc.ToGRPC(invalid("resources: %v", err))
	}
	memory := s.options.size(annotatedSize(s.infra).memory)
	if wanted := sizeOf(&resources).memory; wanted > 0 && s.options.size(wanted) > memory {
		return nil, errgrpc.ToGRPCf(errdefs.ErrFailedPrecondition,
			"container %s: the machine of a unikernel cannot grow, it has %d MiB", u.id, memory)
	}
	return &emptypb.Empty{}, nil
}

// Shutdown ends the pod and the shim, if no container is left or r.Now is set.
func (s *unikernels) Shutdown(_ context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	empty := len(s.members) == 0
	leave := s.leaveCgroup
	s.mu.Unlock()
	if !empty && !r.GetNow() {
		return &emptypb.Empty{}, nil
	}
	s.endAll()
	if leave != nil {
		if err := leave(); err != nil { // the caller may have removed it
			log.L.WithError(err).Warn("failed to remove the cgroup of the virtual machine")
		}
	}
	s.shutdown.Shutdown()
	return &emptypb.Empty{}, nil
}

// Connect returns the processes of the host.
func (s *unikernels) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	pid := uint32(os.Getpid())
	return &task.ConnectResponse{ShimPid: pid, TaskPid: pid, Version: taskVersion}, nil
}

// Pids returns the process that stands for the container.
func (s *unikernels) Pids(context.Context, *task.PidsRequest) (*task.PidsResponse, error) {
	return &task.PidsResponse{Processes: []*types.ProcessInfo{{Pid: uint32(shimPid())}}}, nil
}
