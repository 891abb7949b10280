package daemon

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func TestSelfCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	health := newHealth(srv)
	go srv.Serve(l)
	defer srv.Stop()
	check, done, err := selfCheck(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := check(t.Context()); err == nil || !strings.Contains(err.Error(), "NOT_SERVING") {
		t.Errorf("check before serving = %v, want NOT_SERVING", err)
	}
	setHealth(health, healthpb.HealthCheckResponse_SERVING)
	if err := check(t.Context()); err != nil {
		t.Errorf("check while serving = %v, want nil", err)
	}
	health.Shutdown()
	if err := check(t.Context()); err == nil {
		t.Error("check after the shutdown succeeded, want an error")
	}
}

// TestSelfCheckOfAHangingDaemon: the socket exists, but no connection is accepted.
func TestSelfCheckOfAHangingDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	check, done, err := selfCheck(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if err := checkWithin(t.Context(), 50*time.Millisecond, check); err == nil {
		t.Error("check of a hanging daemon succeeded, want an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := checkWithin(ctx, time.Hour, check); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("canceled check = %v, want an error other than DeadlineExceeded", err)
	}
}
