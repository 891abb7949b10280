package shim

import (
	"context"
	"encoding/json"
	"os"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	types "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func shimPid() int { return os.Getpid() }

// killedStatus is the exit status of what ended with its machine.
const killedStatus = 137

// call calls the guest, for at most callTimeout, and returns its answer's error as one of the shim's.
func (s *Service) call(ctx context.Context, f func(context.Context, *pod) error) (*emptypb.Empty, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	if p.machine.HasEnded() {
		return nil, errgrpc.ToGRPCf(errdefs.ErrNotFound, "the virtual machine has ended")
	}
	ctx, cancel := context.WithTimeout(guestContext(ctx), callTimeout)
	defer cancel()
	if err := f(ctx, p); err != nil {
		return nil, errgrpc.ToGRPC(fromGuest(err))
	}
	return &emptypb.Empty{}, nil
}

// Start starts a container or a command.
func (s *Service) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	var response *task.StartResponse
	_, err := s.call(ctx, func(ctx context.Context, p *pod) error {
		_, err := p.tasks.Start(ctx, r)
		if err != nil {
			p.releasePipes(ctx, processKey{r.GetID(), r.GetExecID()})
		}
		response = &task.StartResponse{Pid: p.pid()}
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Exec prepares a command in a container.
func (s *Service) Exec(ctx context.Context, r *task.ExecProcessRequest) (*emptypb.Empty, error) {
	spec, err := translateProcess(r.GetSpec())
	if err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return s.call(ctx, func(ctx context.Context, p *pod) error {
		q := &task.ExecProcessRequest{ID: r.GetID(), ExecID: r.GetExecID(), Terminal: r.GetTerminal(), Spec: spec}
		k := processKey{r.GetID(), r.GetExecID()}
		streams, err := p.connectStreams(ctx, k, hostStreams{r.GetStdin(), r.GetStdout(), r.GetStderr()})
		if err == nil {
			q.Stdin, q.Stdout, q.Stderr = streams.stdin, streams.stdout, streams.stderr
			_, err = p.tasks.Exec(ctx, q)
		}
		if err != nil {
			p.releasePipes(ctx, k)
		}
		return err
	})
}

// translateProcess leaves out the fields that the guest's kernel does not know.
func translateProcess(spec *anypb.Any) (*anypb.Any, error) {
	var p specs.Process
	if err := json.Unmarshal(spec.GetValue(), &p); err != nil {
		return nil, invalid("process: %v", err)
	}
	p.ApparmorProfile, p.SelinuxLabel = "", ""
	p.ExecCPUAffinity = nil // the host's CPUs
	data, err := json.Marshal(p)
	return &anypb.Any{TypeUrl: spec.GetTypeUrl(), Value: data}, err
}

// State returns the state of a container or a command.
func (s *Service) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	if p.machine.HasEnded() {
		return &task.StateResponse{ID: r.GetID(), ExecID: r.GetExecID(), Pid: p.pid(), Status: types.Status_STOPPED,
			ExitStatus: killedStatus}, nil
	}
	var out *task.StateResponse
	_, err = s.call(ctx, func(ctx context.Context, p *pod) error {
		in, err := p.tasks.State(ctx, r)
		if err == nil {
			out = &task.StateResponse{
				ID: r.GetID(), ExecID: r.GetExecID(), Pid: p.pid(), Status: in.GetStatus(), Terminal: in.GetTerminal(),
				ExitStatus: in.GetExitStatus(), ExitedAt: in.GetExitedAt(),
			}
		}
		return err
	})
	return out, err
}

// Wait returns when a container or a command has ended. What ends with its machine was killed.
func (s *Service) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	in, err := p.tasks.Wait(guestContext(ctx), r)
	if err == nil {
		return &task.WaitResponse{ExitStatus: in.GetExitStatus(), ExitedAt: in.GetExitedAt()}, nil
	}
	if ctx.Err() == nil && p.endedSoon(err) {
		return &task.WaitResponse{ExitStatus: killedStatus, ExitedAt: timestamppb.Now()}, nil
	}
	return nil, errgrpc.ToGRPC(fromGuest(err))
}

// Delete deletes a container or a command that has ended.
func (s *Service) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	out := &task.DeleteResponse{Pid: p.pid(), ExitStatus: killedStatus, ExitedAt: timestamppb.Now()}
	if !p.machine.HasEnded() {
		in, err := p.deleteTask(ctx, r)
		if err != nil && !p.endedSoon(err) {
			return nil, errgrpc.ToGRPC(fromGuest(err))
		}
		if err == nil {
			out.ExitStatus, out.ExitedAt = in.GetExitStatus(), in.GetExitedAt()
		}
	}
	p.endPipes(processKey{r.GetID(), r.GetExecID()})
	if r.GetExecID() == "" {
		if err := p.remove(r.GetID()); err != nil {
			return nil, errgrpc.ToGRPC(err)
		}
	}
	return out, nil
}

// deleteTask has the guest delete a container or a command, within callTimeout.
func (p *pod) deleteTask(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	ctx, cancel := context.WithTimeout(guestContext(ctx), callTimeout)
	defer cancel()
	return p.tasks.Delete(ctx, r)
}

// Kill sends a signal.
func (s *Service) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.Kill(ctx, r); return err })
}

// Pause freezes a container in the guest.
func (s *Service) Pause(ctx context.Context, r *task.PauseRequest) (*emptypb.Empty, error) {
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.Pause(ctx, r); return err })
}

// Resume thaws a container.
func (s *Service) Resume(ctx context.Context, r *task.ResumeRequest) (*emptypb.Empty, error) {
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.Resume(ctx, r); return err })
}

// ResizePty sets the size of a terminal.
func (s *Service) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.ResizePty(ctx, r); return err })
}

// CloseIO ends the input of a process when all that was written has been read.
func (s *Service) CloseIO(ctx context.Context, r *task.CloseIORequest) (*emptypb.Empty, error) {
	return s.call(ctx, func(ctx context.Context, p *pod) error { _, err := p.tasks.CloseIO(ctx, r); return err })
}

// Stats returns the usage of a container, as the guest measures it.
func (s *Service) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	var out *task.StatsResponse
	_, err := s.call(ctx, func(ctx context.Context, p *pod) error {
		in, err := p.tasks.Stats(ctx, r)
		if err != nil {
			return err
		}
		out, err = checkStats(in)
		return err
	})
	return out, err
}

// Pids returns the process that stands for those of the container: the guest's have no numbers on the host.
func (s *Service) Pids(context.Context, *task.PidsRequest) (*task.PidsResponse, error) {
	p, err := s.current()
	if err != nil {
		return nil, err
	}
	return &task.PidsResponse{Processes: []*types.ProcessInfo{{Pid: p.pid()}}}, nil
}

// Checkpoint is not supported.
func (s *Service) Checkpoint(context.Context, *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, errgrpc.ToGRPCf(errdefs.ErrNotImplemented, "a container of a virtual machine cannot be checkpointed")
}
