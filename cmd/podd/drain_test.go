package main

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

// slowHealth answers Check when it is told to.
type slowHealth struct {
	*health.Server
	entered, release chan struct{}
}

func (s slowHealth) Check(context.Context, *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	close(s.entered)
	<-s.release
	return &healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_SERVING}, nil
}

// drainable is a server with a stream open and a unary call under way.
type drainable struct {
	srv   *grpc.Server
	calls *inflight
	slow  slowHealth
	// answer is the unary call's outcome, watch the stream's.
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

// TestDrainWaitsForCallsNotForStreams: the call under way is answered, the open stream does not hold it up.
func TestDrainWaitsForCallsNotForStreams(t *testing.T) {
	log, hook := test.NewNullLogger()
	d := newDrainable(t)
	drained := make(chan struct{})
	go func() { drain(d.srv, d.calls, time.Hour, log); close(drained) }()
	select {
	case <-drained:
		t.Fatal("drained with a call under way")
	case <-time.After(50 * time.Millisecond): // nothing to wait for: it must not happen
	}
	close(d.slow.release)
	if err := <-d.answer; err != nil {
		t.Errorf("the call under way got %v", err)
	}
	<-drained
	if err := <-d.watch; err == nil {
		t.Error("the stream is still open")
	}
	if len(hook.Entries) > 0 {
		t.Errorf("logged %v", hook.Entries)
	}
}

func TestDrainIsBounded(t *testing.T) {
	log, hook := test.NewNullLogger()
	d := newDrainable(t)
	go func() { // gRPC waits for the handler after it has cut the client off
		<-d.watch
		close(d.slow.release)
	}()
	drain(d.srv, d.calls, time.Millisecond, log)
	if err := <-d.answer; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut off got %v", err)
	}
	if len(hook.Entries) != 1 {
		t.Errorf("logged %v", hook.Entries)
	}
}
