package shim

import (
	"context"
	"sync"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Front is the service of a shim. The first Create says what kind of pod it is; all calls go to the service for that.
type Front struct {
	publisher shim.Publisher
	shutdown  shutdown.Service
	ctx       context.Context

	mu     sync.Mutex
	chosen task.TTRPCTaskService
}

var _ task.TTRPCTaskService = (*Front)(nil)

// New returns the service of a new shim. ctx has containerd's namespace.
func New(ctx context.Context, publisher shim.Publisher, stop shutdown.Service) *Front {
	return &Front{ctx: ctx, publisher: publisher, shutdown: stop}
}

// RegisterTTRPC registers the service.
func (f *Front) RegisterTTRPC(server *ttrpc.Server) error {
	task.RegisterTTRPCTaskService(server, f)
	return nil
}

// Create creates a container; the first one decides.
func (f *Front) Create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if err := f.choose(r.GetOptions()); err != nil {
		return nil, errgrpc.ToGRPC(err)
	}
	return f.service().Create(ctx, r)
}

// choose chooses the service, unless it is chosen.
func (f *Front) choose(options *anypb.Any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chosen != nil {
		return nil
	}
	o, err := parseOptions(options)
	if err != nil {
		return err
	}
	f.chosen = f.withAgent()
	if o.Kernel == kernelOfImage {
		f.chosen = newUnikernels(f.shutdown)
	}
	return nil
}

func (f *Front) withAgent() *Service {
	return &Service{ctx: f.ctx, publisher: f.publisher, shutdown: f.shutdown, creating: make(chan struct{}, 1)}
}

// service is that of the pod. Before there is one, it is that of a pod without a machine.
func (f *Front) service() task.TTRPCTaskService {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.chosen == nil {
		return f.withAgent()
	}
	return f.chosen
}

// State passes the call on, as the methods that follow do.
func (f *Front) State(ctx context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	return f.service().State(ctx, r)
}

// Start passes the call on.
func (f *Front) Start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	return f.service().Start(ctx, r)
}

// Delete passes the call on.
func (f *Front) Delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	return f.service().Delete(ctx, r)
}

// Pids passes the call on.
func (f *Front) Pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	return f.service().Pids(ctx, r)
}

// Pause passes the call on.
func (f *Front) Pause(ctx context.Context, r *task.PauseRequest) (*emptypb.Empty, error) {
	return f.service().Pause(ctx, r)
}

// Resume passes the call on.
func (f *Front) Resume(ctx context.Context, r *task.ResumeRequest) (*emptypb.Empty, error) {
	return f.service().Resume(ctx, r)
}

// Checkpoint passes the call on.
func (f *Front) Checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return f.service().Checkpoint(ctx, r)
}

// Kill passes the call on.
func (f *Front) Kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	return f.service().Kill(ctx, r)
}

// Exec passes the call on.
func (f *Front) Exec(ctx context.Context, r *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return f.service().Exec(ctx, r)
}

// ResizePty passes the call on.
func (f *Front) ResizePty(ctx context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	return f.service().ResizePty(ctx, r)
}

// CloseIO passes the call on.
func (f *Front) CloseIO(ctx context.Context, r *task.CloseIORequest) (*emptypb.Empty, error) {
	return f.service().CloseIO(ctx, r)
}

// Update passes the call on.
func (f *Front) Update(ctx context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	return f.service().Update(ctx, r)
}

// Wait passes the call on.
func (f *Front) Wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	return f.service().Wait(ctx, r)
}

// Stats passes the call on.
func (f *Front) Stats(ctx context.Context, r *task.StatsRequest) (*task.StatsResponse, error) {
	return f.service().Stats(ctx, r)
}

// Connect passes the call on.
func (f *Front) Connect(ctx context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	return f.service().Connect(ctx, r)
}

// Shutdown passes the call on.
func (f *Front) Shutdown(ctx context.Context, r *task.ShutdownRequest) (*emptypb.Empty, error) {
	return f.service().Shutdown(ctx, r)
}
