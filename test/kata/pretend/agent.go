package main

import (
	"context"
	"fmt"
	"sync"

	agents "github.com/kata-containers/kata-containers/src/runtime/virtcontainers/pkg/agent/protocols/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// agent pretends to be that of a machine. What it does not implement panics, so that the shim reports it.
type agent struct {
	agents.AgentServiceService
	mu        sync.Mutex
	processes map[string]*process
}

// process is the first one of a container, or a command.
type process struct {
	ended  chan struct{}
	end    sync.Once
	status int32
}

func (p *process) exit(status int32) {
	p.end.Do(func() { p.status = status; close(p.ended) })
}

// find returns a process, also one that is still to come.
func (a *agent) find(container, exec string) *process {
	if exec == "" {
		exec = container
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := container + "/" + exec
	if a.processes[key] == nil {
		a.processes[key] = &process{ended: make(chan struct{})}
	}
	return a.processes[key]
}

var done = &emptypb.Empty{}

func (a *agent) Check(context.Context, *agents.CheckRequest) (*agents.HealthCheckResponse, error) {
	return &agents.HealthCheckResponse{Status: agents.HealthCheckResponse_SERVING}, nil
}

func (a *agent) Version(context.Context, *agents.CheckRequest) (*agents.VersionCheckResponse, error) {
	return &agents.VersionCheckResponse{GrpcVersion: "0.0.1", AgentVersion: "3.20.0"}, nil
}

func (a *agent) GetGuestDetails(context.Context, *agents.GuestDetailsRequest) (*agents.GuestDetailsResponse, error) {
	return &agents.GuestDetailsResponse{
		MemBlockSizeBytes: 128 << 20, AgentDetails: &agents.AgentDetails{Version: "3.20.0"},
	}, nil
}

func (a *agent) CreateSandbox(_ context.Context, r *agents.CreateSandboxRequest) (*emptypb.Empty, error) {
	fmt.Println("CreateSandbox", r.Hostname)
	return done, nil
}

func (a *agent) DestroySandbox(context.Context, *agents.DestroySandboxRequest) (*emptypb.Empty, error) {
	fmt.Println("DestroySandbox")
	return done, nil
}

func (a *agent) CreateContainer(_ context.Context, r *agents.CreateContainerRequest) (*emptypb.Empty, error) {
	fmt.Println("CreateContainer", r.ContainerId, r.OCI.Process.Args, r.OCI.Linux.Sysctl)
	return done, nil
}

func (a *agent) StartContainer(_ context.Context, r *agents.StartContainerRequest) (*emptypb.Empty, error) {
	fmt.Println("StartContainer", r.ContainerId)
	return done, nil
}

func (a *agent) RemoveContainer(_ context.Context, r *agents.RemoveContainerRequest) (*emptypb.Empty, error) {
	fmt.Println("RemoveContainer", r.ContainerId)
	a.find(r.ContainerId, "").exit(137)
	return done, nil
}

// ExecProcess runs a command: "false" fails, "sleep" waits for a signal, all others succeed.
func (a *agent) ExecProcess(_ context.Context, r *agents.ExecProcessRequest) (*emptypb.Empty, error) {
	fmt.Println("ExecProcess", r.ContainerId, r.Process.Args)
	switch p := a.find(r.ContainerId, r.ExecId); r.Process.Args[0] {
	case "sleep":
	case "false":
		p.exit(1)
	default:
		p.exit(0)
	}
	return done, nil
}

func (a *agent) SignalProcess(_ context.Context, r *agents.SignalProcessRequest) (*emptypb.Empty, error) {
	fmt.Println("SignalProcess", r.ContainerId, r.Signal)
	a.find(r.ContainerId, r.ExecId).exit(128 + int32(r.Signal))
	return done, nil
}

func (a *agent) WaitProcess(ctx context.Context, r *agents.WaitProcessRequest) (*agents.WaitProcessResponse, error) {
	p := a.find(r.ContainerId, r.ExecId)
	select {
	case <-p.ended:
		return &agents.WaitProcessResponse{Status: p.status}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read is the end of the output of a process that has ended.
func (a *agent) read(ctx context.Context, r *agents.ReadStreamRequest) (*agents.ReadStreamResponse, error) {
	select {
	case <-a.find(r.ContainerId, r.ExecId).ended:
		return nil, status.Error(codes.OutOfRange, "EOF")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *agent) ReadStdout(ctx context.Context, r *agents.ReadStreamRequest) (*agents.ReadStreamResponse, error) {
	return a.read(ctx, r)
}

func (a *agent) ReadStderr(ctx context.Context, r *agents.ReadStreamRequest) (*agents.ReadStreamResponse, error) {
	return a.read(ctx, r)
}

func (a *agent) WriteStdin(_ context.Context, r *agents.WriteStreamRequest) (*agents.WriteStreamResponse, error) {
	return &agents.WriteStreamResponse{Len: uint32(len(r.Data))}, nil
}

func (a *agent) CloseStdin(context.Context, *agents.CloseStdinRequest) (*emptypb.Empty, error) {
	return done, nil
}

func (a *agent) StatsContainer(context.Context, *agents.StatsContainerRequest) (*agents.StatsContainerResponse, error) {
	return &agents.StatsContainerResponse{CgroupStats: &agents.CgroupStats{
		CpuStats:    &agents.CpuStats{CpuUsage: &agents.CpuUsage{TotalUsage: 12345678}},
		MemoryStats: &agents.MemoryStats{Usage: &agents.MemoryData{Usage: 4 << 20}},
		PidsStats:   &agents.PidsStats{Current: 3},
	}}, nil
}

func (a *agent) UpdateContainer(_ context.Context, r *agents.UpdateContainerRequest) (*emptypb.Empty, error) {
	fmt.Println("UpdateContainer", r.ContainerId, r.Resources.GetMemory().GetLimit())
	return done, nil
}

func (a *agent) CopyFile(context.Context, *agents.CopyFileRequest) (*emptypb.Empty, error) {
	return done, nil
}

func (a *agent) GetOOMEvent(ctx context.Context, _ *agents.GetOOMEventRequest) (*agents.OOMEvent, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (a *agent) OnlineCPUMem(context.Context, *agents.OnlineCPUMemRequest) (*emptypb.Empty, error) {
	return done, nil
}

func (a *agent) SetGuestDateTime(context.Context, *agents.SetGuestDateTimeRequest) (*emptypb.Empty, error) {
	return done, nil
}

func (a *agent) ReseedRandomDev(context.Context, *agents.ReseedRandomDevRequest) (*emptypb.Empty, error) {
	return done, nil
}

func (a *agent) RemoveStaleVirtiofsShareMounts(
	context.Context, *agents.RemoveStaleVirtiofsShareMountsRequest,
) (*emptypb.Empty, error) {
	return done, nil
}
