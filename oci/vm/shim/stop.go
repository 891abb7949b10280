package shim

import (
	"context"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/podd-project/podd/oci/vm/wire"
)

// haltGrace is how long the guest may take to write its file systems and power off.
const haltGrace = 3 * time.Second

// Shutdown ends the machine and the shim, if no container is left or r.Now is set.
func (s *Service) Shutdown(_ context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	if p, err := s.current(); err == nil {
		if !p.isEmpty() && !r.GetNow() {
			return &emptypb.Empty{}, nil
		}
		p.end(haltGrace)
	}
	s.shutdown.Shutdown()
	return &emptypb.Empty{}, nil
}

// end ends what there is of the machine. grace is the time that the guest gets to do it itself.
func (p *pod) end(grace time.Duration) {
	if p.session != nil && grace > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		if c, err := p.open(ctx, wire.Header{Kind: wire.Halt}); err == nil {
			defer c.Close()
		}
	}
	if p.machine != nil {
		p.machine.Stop(grace)
	}
	if p.session != nil {
		_ = p.session.Close()
	}
	if p.jail != nil {
		p.jail.Close()
	}
	if p.leaveCgroup == nil {
		return
	}
	if err := p.leaveCgroup(); err != nil { // the caller may have removed it
		log.L.WithError(err).Warn("failed to remove the cgroup of the virtual machine")
	}
}

// loseLine ends a machine whose line has ended: it cannot be reached.
func (p *pod) loseLine() {
	p.machine.Stop(endGrace)
	if !p.isEmpty() {
		log.L.WithField("console", p.machine.Console.Lines(consoleLines)).Warn("the virtual machine has ended")
	}
}

// Connect returns the processes of the host.
func (s *Service) Connect(context.Context, *task.ConnectRequest) (*task.ConnectResponse, error) {
	r := &task.ConnectResponse{ShimPid: uint32(shimPid()), Version: taskVersion}
	if p, err := s.current(); err == nil {
		r.TaskPid = p.pid()
	}
	return r, nil
}

// taskVersion is the version of the task API.
const taskVersion = "v3"
