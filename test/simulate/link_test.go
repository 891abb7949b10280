package simulate

import (
	"context"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/imagetest"
	"github.com/podd-project/podd/server"
)

// link carries the calls of CRI's generated client to package server: through the encoding, the generated handlers and
// the interceptors, on the caller's goroutine. It replaces gRPC's transport, whose goroutines choose by chance among
// what is ready, so that a seed would not give one log.
type link struct {
	w       *world
	p       *podd
	unary   grpc.UnaryServerInterceptor
	stream  grpc.StreamServerInterceptor
	methods map[string]func(ctx context.Context, decode func(any) error) (any, error)
	streams map[string]grpc.StreamHandler
	srv     any
	// served counts the calls that the server has reported.
	served atomic.Int64
}

var _ grpc.ClientConnInterface = (*link)(nil)

// newLink returns the link to a server on the engine of p.
func newLink(w *world, p *podd) *link {
	l := &link{
		w: w, p: p, streams: map[string]grpc.StreamHandler{},
		methods: map[string]func(context.Context, func(any) error) (any, error){},
	}
	s := server.New(server.Config{Version: "1.0.0"}, server.Deps{
		Engine: server.Adapt(p.e), Images: images{fake: w.m.Images.Reopen()}, Space: func() error { return nil },
		Observe: func(server.Call) { l.served.Add(1) }, Log: p.deps.Log,
	})
	l.unary, l.stream = s.Interceptors()
	s.Register(l)
	return l
}

// RegisterService is called with CRI's services.
func (l *link) RegisterService(d *grpc.ServiceDesc, srv any) {
	l.srv = srv
	for _, m := range d.Methods {
		l.methods["/"+d.ServiceName+"/"+m.MethodName] = func(ctx context.Context, dec func(any) error) (any, error) {
			return m.Handler(srv, ctx, dec, l.unary)
		}
	}
	for _, s := range d.Streams {
		l.streams["/"+d.ServiceName+"/"+s.StreamName] = s.Handler
	}
}

// Invoke makes a call, at times twice: a kubelet that was restarted repeats what is in progress. The time that the
// network takes is that of podd.client.
func (l *link) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	name := path.Base(method)
	reads := strings.HasPrefix(name, "List") || strings.HasSuffix(name, "Status")
	if !reads && l.w.may("twice") && l.w.roll("twice "+name).IntN(20) == 0 {
		l.w.log("twice: %s", name)
		go func() {
			ctx, cancel := context.WithTimeout(l.p.conn, time.Minute)
			defer cancel()
			l.w.pause(ctx, "twice "+name, time.Duration(l.w.roll("again "+name).IntN(2000))*time.Millisecond)
			if ctx.Err() == nil && !l.p.isDead() {
				second := answer.(proto.Message).ProtoReflect().New().Interface()
				_ = l.invoke(ctx, method, request, second) // only its history counts
			}
		}()
	}
	return l.invoke(ctx, method, request, answer)
}

func (l *link) invoke(ctx context.Context, method string, request, answer any) error {
	wire, err := proto.Marshal(request.(proto.Message))
	if err != nil {
		return err
	}
	began, served := time.Now(), l.served.Load()
	l.w.history.request(request)
	got, err := l.methods[method](ctx, func(m any) error { return proto.Unmarshal(wire, m.(proto.Message)) })
	l.check(path.Base(method), err, l.served.Load()-served)
	if err == nil {
		wire, err = proto.Marshal(got.(proto.Message))
	}
	if err == nil {
		err = proto.Unmarshal(wire, answer.(proto.Message))
	}
	if heard := !l.p.isDead() && l.p.conn.Err() == nil; heard {
		l.w.history.answer(began, request, answer, err, l.p.complete())
	}
	return err
}

// check compares an answer with what every answer of the server is.
func (l *link) check(method string, err error, served int64) {
	s, ok := status.FromError(err)
	switch code := s.Code(); {
	case !ok:
		l.w.violated(ruleCode, "%s: %v", method, err)
	case code == codes.InvalidArgument, code == codes.Unimplemented, strings.Contains(s.Message(), "panicked"):
		l.w.violated(ruleCode, "%s, a valid call: %v", method, err)
	case code == codes.NotFound && (strings.HasPrefix(method, "Stop") || strings.HasPrefix(method, "Remove")):
		l.w.violated(ruleCode, "%s: %v", method, err)
	case served < 1: // others may have ended at the same time
		l.w.violated(ruleCode, "%s is not reported to the metrics", method)
	}
}

// NewStream starts a stream that the server sends.
func (l *link) NewStream(
	ctx context.Context, d *grpc.StreamDesc, method string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s := &stream{ctx: ctx, request: make(chan []byte, 1), answers: make(chan []byte, 100)}
	go func() {
		defer close(s.answers)
		s.err = l.stream(l.srv, serverHalf{s}, &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true},
			l.streams[method])
	}()
	return s, nil
}

// stream is a stream as the client sees it.
type stream struct {
	grpc.ClientStream
	ctx     context.Context
	request chan []byte
	answers chan []byte // closed at the end, err set before
	err     error
}

func (s *stream) CloseSend() error { return nil }

func (s *stream) SendMsg(m any) error { return send(s.ctx, s.request, m) }

func (s *stream) RecvMsg(m any) error {
	wire, ok := <-s.answers
	if !ok {
		return s.err
	}
	return proto.Unmarshal(wire, m.(proto.Message))
}

// serverHalf is a stream as the server sees it.
type serverHalf struct{ *stream }

var _ grpc.ServerStream = serverHalf{}

func (s serverHalf) Context() context.Context     { return s.ctx }
func (s serverHalf) SendMsg(m any) error          { return send(s.ctx, s.answers, m) }
func (s serverHalf) RecvMsg(m any) error          { return proto.Unmarshal(<-s.request, m.(proto.Message)) }
func (s serverHalf) SetHeader(metadata.MD) error  { return nil }
func (s serverHalf) SendHeader(metadata.MD) error { return nil }
func (s serverHalf) SetTrailer(metadata.MD)       {}

func send(ctx context.Context, to chan<- []byte, m any) error {
	if ctx.Err() != nil { // a select would choose by chance
		return context.Cause(ctx)
	}
	wire, err := proto.Marshal(m.(proto.Message))
	if err != nil {
		return err
	}
	select {
	case to <- wire:
	case <-ctx.Done():
	}
	return nil
}

// images are those that statuses name. The model kubelet makes no call of the image service.
type images struct {
	server.Images
	fake *imagetest.Fake
}

func (i images) Resolve(ctx context.Context, ref string) (*image.Image, error) {
	return i.fake.Resolve(ctx, ref)
}

// cri returns the client of podd.
func (p *podd) cri() cri.RuntimeServiceClient { return cri.NewRuntimeServiceClient(p.link) }
