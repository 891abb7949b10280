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
)

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
