// Command containerd-shim-podvm-v1 is a containerd shim that runs each pod in a separate virtual machine.
package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/log"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/jail"
	service "github.com/podd-project/podd/oci/vm/shim"
)

const name = "io.containerd.podvm.v1"

func main() {
	jail.MaybeInit()
	registry.Register(&plugin.Registration{
		Type: plugins.TTRPCPlugin, ID: "task", Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn: newService,
	})
	// The service waits for its own children.
	own := func(c *shim.Config) { c.NoReaper, c.NoSubreaper = true, true }
	shim.RunShim(context.Background(), podvm{manager.NewShimManager(name)}, own)
}

func newService(ic *plugin.InitContext) (any, error) {
	service.BoundLog(os.Stderr) // the library has made the log its standard error
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	stopper, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	stop := stopper.(shutdown.Service)
	if address, err := shim.ReadAddress("address"); err == nil {
		stop.RegisterCallback(func(context.Context) error { return shim.RemoveSocket(address) })
	}
	return service.New(ic.Context, publisher.(shim.Publisher), stop), nil
}

// podvm starts the shim as runc's shim is started: one for all containers of a pod.
type podvm struct{ shim.Shim }

// Name is the name of the runtime in containerd's configuration.
func (podvm) Name() string { return name }

// optionsLimit is the size of the largest options of a handler, in bytes.
const optionsLimit = 1 << 20

// Info describes the runtime, and says whether it can run pods with the options that r has.
func (podvm) Info(_ context.Context, r io.Reader) (*types.RuntimeInfo, error) {
	options, err := io.ReadAll(io.LimitReader(r, optionsLimit))
	if err != nil {
		return nil, err
	}
	f, err := json.Marshal(service.Features())
	if err != nil {
		return nil, err
	}
	return &types.RuntimeInfo{
		Name: name, Version: &types.RuntimeVersion{Version: "1"}, Annotations: service.Describe(options),
		Features: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/features/Features", Value: f},
	}, nil
}

// Stop removes the remains of a container whose shim is gone. The exit status is that of a killed container.
func (podvm) Stop(ctx context.Context, id string) (shim.StopStatus, error) {
	bundle := filepath.Join("..", id) // callers may run it in the bundle of another container
	if err := service.Cleanup(bundle); err != nil {
		log.G(ctx).WithError(err).Warn("failed to clean up after a shim that is gone")
	}
	return shim.StopStatus{Pid: os.Getpid(), ExitedAt: time.Now(), ExitStatus: 137}, nil
}
