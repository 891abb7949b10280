package daemon

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// slowHealth answers Check when release is closed.
type slowHealth struct {
	*health.Server
	entered, release chan struct{}
}

func (s slowHealth) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	close(s.entered)
	<-s.release
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// drainable is a server with an open stream and a unary call in progress.
type drainable struct {
	srv   *grpc.Server
	calls *inflight
	slow  slowHealth
	// answer receives the error of the unary call, watch that of the stream.
	answer, watch chan error
}

func newDrainable(t *testing.T) *drainable {
	t.Helper()
	d := &drainable{
		calls: &inflight{}, answer: make(chan error, 1), watch: make(chan error, 1),
		slow: slowHealth{health.NewServer(), make(chan struct{}), make(chan struct{})},
	}
	d.srv = grpc.NewServer(grpc.ChainUnaryInterceptor(d.calls.count))
	healthpb.RegisterHealthServer(d.srv, d.slow)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go d.srv.Serve(l)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := healthpb.NewHealthClient(conn)
	stream, err := client.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	go func() { _, err := stream.Recv(); d.watch <- err }()
	go func() { _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); d.answer <- err }()
	<-d.slow.entered
	return d
}

// TestDrainWaitsForCallsNotForStreams: the call in progress is answered, the open stream is closed.
func TestDrainWaitsForCallsNotForStreams(t *testing.T) {
	log, hook := test.NewNullLogger()
	d := newDrainable(t)
	drained := make(chan struct{})
	go func() { drain(d.srv, d.calls, time.Hour, log); close(drained) }()
	select {
	case <-drained:
		t.Fatal("drain returned with a call in progress")
	case <-time.After(50 * time.Millisecond): // no event to wait for: it must not happen
	}
	close(d.slow.release)
	if err := <-d.answer; err != nil {
		t.Errorf("the call in progress got %v, want nil", err)
	}
	<-drained
	if err := <-d.watch; err == nil {
		t.Error("the stream ended without an error, want one")
	}
	if n := len(hook.Entries); n > 0 {
		t.Errorf("%d log entries, want none", n)
	}
}

func TestDrainIsBounded(t *testing.T) {
	log, hook := test.NewNullLogger()
	d := newDrainable(t)
	go func() { // gRPC waits for the handler after it has canceled the call
		<-d.watch
		close(d.slow.release)
	}()
	drain(d.srv, d.calls, time.Millisecond, log)
	if err := <-d.answer; status.Code(err) != codes.Unavailable {
		t.Errorf("the canceled call got %v, want Unavailable", err)
	}
	if n := len(hook.Entries); n != 1 {
		t.Errorf("%d log entries, want 1", n)
	}
}
