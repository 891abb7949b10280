package server

import (
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

// Deps are the dependencies of the server. All are required, but Info and Observe.
type Deps struct {
	Engine  Engine
	Images  Images
	Network Network
	// Streamer serves exec, attach and port-forward.
	Streamer Streamer
	// RuntimeSpec reads a container's config.json for verbose responses.
	RuntimeSpec SpecReader
	// PodSpec reads or makes a pod's config.json for verbose responses.
	PodSpec func(*record.Pod) (*specs.Spec, error)
	// Space returns why there is no space for another pod, nil if there is. Status calls it.
	Space func() error
	// Info adds sections to the verbose Status, by name. The values are marshalled as JSON and must have no secrets.
	Info map[string]func() any
	// Observe is called with every finished call, for metrics. It must not block, and may be nil.
	Observe func(Call)
	Log     logrus.FieldLogger
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
func New(cfg Config, deps Deps) *Server { return &Server{cfg: cfg, deps: deps} }

// Register adds both CRI services to r.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	cri.RegisterRuntimeServiceServer(r, s)
	cri.RegisterImageServiceServer(r, s)
}

// Options returns the options for grpc.NewServer: interceptors and message sizes.
func (s *Server) Options() []grpc.ServerOption {
	unary, stream := s.Interceptors()
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(budget.MaxRequest),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.ChainUnaryInterceptor(unary),
		grpc.ChainStreamInterceptor(stream),
	}
}

// Interceptors returns what every call passes through, whatever carries it.
func (s *Server) Interceptors() (grpc.UnaryServerInterceptor, grpc.StreamServerInterceptor) {
	return s.interceptUnary, s.interceptStream
}
