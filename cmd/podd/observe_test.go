package main

import (
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/sandbox/operation"
)

// observing returns a daemon with a root directory of its own.
func observing(t *testing.T) *daemon {
	log, _ := test.NewNullLogger()
	d := &daemon{cfg: settings.Default(), log: log}
	d.cfg.Root = t.TempDir()
	return d
}

// TestObserversByDefault: operations are kept in the history, which survives the daemon, and measured.
func TestObserversByDefault(t *testing.T) {
	d := observing(t)
	o := d.newObservers()
	if o.metrics == nil || o.call() == nil || o.grpcOptions() != nil || len(d.closers) != 1 {
		t.Errorf("observers = %+v with %d closers, want the history and metrics", o, len(d.closers))
	}
	o.operation()(t.Context(), operation.Operation{Verb: "X"})
	if err := d.undoStart(); err != nil {
		t.Error(err)
	}
	found, err := history.Read(history.Dir(d.cfg.Root), history.Query{Limit: 10})
	if err != nil || len(found) != 1 || found[0].Verb != "X" {
		t.Errorf("history = %+v, %v, want operation X", found, err)
	}
	if (observers{}).operation() != nil {
		t.Error("a command that does not serve observes operations, want nil")
	}
}

func TestObservers(t *testing.T) {
	for _, c := range []struct {
		metrics, endpoint string
		call              bool
		options, closers  int
	}{
		{"127.0.0.1:9478", "", true, 0, 1},
		{"", "127.0.0.1:4317", false, 1, 2},
		{"127.0.0.1:9478", "127.0.0.1:4317", true, 1, 2},
	} {
		d := observing(t)
		d.cfg.Metrics, d.cfg.Tracing = metrics.Config{Address: c.metrics}, tracing.Config{Endpoint: c.endpoint}
		o := d.newObservers()
		o.operation()(t.Context(), operation.Operation{Verb: "X"})
		if (o.call() != nil) != c.call || len(o.grpcOptions()) != c.options || len(d.closers) != c.closers {
			t.Errorf("observers = %+v with %d closers, want %+v", o, len(d.closers), c)
		}
		if err := d.undoStart(); err != nil {
			t.Error(err)
		}
	}
}

// TestTracingThatCannotBeSetUp: podd runs without it.
func TestTracingThatCannotBeSetUp(t *testing.T) {
	d := observing(t)
	d.cfg.Tracing = tracing.Config{Endpoint: "http://127.0.0.1:4317", HeadersFile: "/nonexistent"}
	if o := d.newObservers(); o.tracer != nil || o.history == nil {
		t.Errorf("observers = %+v, want the history and no tracer", o)
	}
	if err := d.undoStart(); err != nil {
		t.Error(err)
	}
}

// TestMetricsEndpoint scrapes a real daemon without pods.
func TestMetricsEndpoint(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil, "--set", "metrics.address=unix://"+s.path("m/metrics.sock"))
	for name, want := range map[string]fs.FileMode{"m": fs.ModeDir | 0o700, "m/metrics.sock": fs.ModeSocket | 0o660} {
		if info, err := os.Lstat(s.path(name)); err != nil || info.Mode() != want {
			t.Errorf("%s = %v, %v, want mode %v", name, info, err, want)
		}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.path("m/metrics.sock"))
	}
	c := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := c.Get("http://podd/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`podd_build_info{version="v1.2.3-test"} 1`, `podd_pods{state="ready"} 0`, "podd_images 0", "podd_network_ready 0",
	} {
		if !strings.Contains(string(body), "\n"+want+"\n") {
			t.Errorf("no line %s in\n%s", want, body)
		}
	}
	if code := d.stop(t); code != 0 {
		t.Errorf("exit status = %d, want 0", code)
	}
	if _, err := os.Lstat(s.path("m/metrics.sock")); !os.IsNotExist(err) {
		t.Errorf("Lstat(socket) = %v, want not exist", err)
	}
}

// TestDaemonRunsWithoutMetrics: another process listens on the port.
func TestDaemonRunsWithoutMetrics(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := newSite(t)
	d := s.start(t, nil, "--set", "metrics.address="+l.Addr().String()) // waits for READY=1
	d.log.expect(t, "failed to serve metrics")
}
