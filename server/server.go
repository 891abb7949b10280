package server

import (
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// maxMessage bounds gRPC messages in both directions, in bytes: what the kubelet and crictl accept.
const maxMessage = 16 << 20

// Config is what the server says about the node without asking anybody.
type Config struct {
	// Version is podd's own version, e.g. "1.2.3": the kubelet parses it as a semantic version.
	Version string
	// SystemdCgroup tells the kubelet which cgroup driver to use: systemd, else cgroupfs.
	SystemdCgroup bool
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	if c.Version == "" {
		return errors.New("version: must not be empty")
	}
	return nil
}

// Deps is what the server calls.
type Deps struct {
	Engine  Engine
	Images  Images
	Network Network
	// Streamer serves exec, attach and port-forward; without it these answer Unimplemented.
	Streamer Streamer
	// RuntimeSpec reads a container's config.json for verbose answers; nil leaves it out.
	RuntimeSpec SpecReader
	// Info adds sections to the verbose Status: name -> value, marshalled as JSON. They must hold no secrets.
	Info map[string]func() any
	// Observe is told of every finished call, for metrics; it must not block. It may be nil.
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

// Server implements runtime.v1.RuntimeService and runtime.v1.ImageService. The embedded Unsafe interfaces make
// the compiler refuse a cri-api with an RPC that is not written down here.
type Server struct {
	cri.UnsafeRuntimeServiceServer
	cri.UnsafeImageServiceServer
	cfg  Config
	deps Deps
	// Encoded parts of list items.
	podCache       listCache[record.Pod]
	containerCache listCache[record.Container]
}

// New returns a server; it serves nothing until registered.
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

// Options are what the gRPC server must be made with: the interceptors and the message sizes.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(s.interceptUnary),
		grpc.ChainStreamInterceptor(s.interceptStream),
	}
}
