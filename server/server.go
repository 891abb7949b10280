package server

import (
	"errors"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/record"
)

// maxMessage limits answers, in bytes: the limit of the kubelet and of crictl.
const maxMessage = 16 << 20

// Config has the properties of the node that do not change.
type Config struct {
	// Version is podd's version, e.g. "1.2.3". The kubelet parses it as a semantic version.
	Version string
	// SystemdCgroup selects the cgroup driver that the kubelet must use: systemd, else cgroupfs.
	SystemdCgroup bool
}

// Validate returns an error if the configuration is invalid.
func (c Config) Validate() error {
	if c.Version == "" {
		return errors.New("version: must not be empty")
	}
	return nil
}

// Deps are the dependencies of the server.
type Deps struct {
	Engine  Engine
	Images  Images
	Network Network
	// Streamer serves exec, attach and port-forward; without it these return Unimplemented.
	Streamer Streamer
	// RuntimeSpec reads a container's config.json for verbose responses; nil leaves it out.
	RuntimeSpec SpecReader
	// PodSpec reads or makes a pod's config.json for verbose responses; nil leaves it out.
	PodSpec func(*record.Pod) (*specs.Spec, error)
	// Space returns why there is no space for another pod, nil if there is. Status calls it; nil means that there is.
	Space func() error
	// Info adds sections to the verbose Status, by name. The values are marshalled as JSON and must have no secrets.
	Info map[string]func() any
	// Observe is called with every finished call, for metrics. It must not block, and may be nil.
	Observe func(Call)
	Log     logrus.FieldLogger
}

func (d Deps) validate() error {
	switch {
	case d.Engine == nil:
		return errors.New("server needs an engine")
	case d.Images == nil:
		return errors.New("server needs an image store")
	case d.Network == nil:
		return errors.New("server needs a network")
	case d.Log == nil:
		return errors.New("server needs a log")
	}
	return nil
}

// Server implements runtime.v1.RuntimeService and runtime.v1.ImageService. With the embedded Unsafe interfaces it does
// not compile with a cri-api that has more RPCs.
type Server struct {
	cri.UnsafeRuntimeServiceServer
	cri.UnsafeImageServiceServer
	cfg  Config
	deps Deps
	// Encoded parts of list items.
	podCache       listCache[record.Pod]
	containerCache listCache[record.Container]
	// failing are commands that fail again and again, and answers that are too large.
	failing repeats
}

// New returns a server. It serves once registered.
func New(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("server configuration: %w", err)
	}
	if err := deps.validate(); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, deps: deps}, nil
}

// Register adds both CRI services to r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	cri.RegisterRuntimeServiceServer(r, s)
	cri.RegisterImageServiceServer(r, s)
}

// Options returns the options for grpc.NewServer: interceptors and message sizes.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(budget.MaxRequest),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.interceptUnary),
		grpc.ChainStreamInterceptor(s.interceptStream),
	}
}
