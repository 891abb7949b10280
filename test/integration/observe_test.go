package integration

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// spans is an OTLP collector that keeps the spans that podd exports.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex // guards all
	all []*tracepb.Span
}

// Export implements TraceServiceServer.
func (s *spans) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			s.all = append(s.all, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// find returns the spans with the name in the trace.
func (s *spans) find(trace, name string) (found []*tracepb.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if hex.EncodeToString(one.GetTraceId()) == trace && one.GetName() == name {
			found = append(found, one)
		}
	}
	return found
}

// collect serves a collector on the socket otlp in a directory of its own, until the test's end.
func collect(t *testing.T) (s *spans, dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "podd-otlp-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/otlp")
	if err != nil {
		t.Fatal(err)
	}
	s = &spans{}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, s)
	go srv.Serve(l)
	t.Cleanup(func() {
		srv.Stop()
		os.RemoveAll(dir)
	})
	return s, dir
}

// scrape gets the metrics by HTTP over the socket, as Prometheus does.
func (k *kubelet) scrape(socket string) string {
	k.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	c := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	resp, err := c.Get("http://podd/metrics")
	k.ok("scrape", err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	k.ok("scrape", err)
	if resp.StatusCode != http.StatusOK {
		k.Fatalf("scrape: status = %s, want 200\n%s", resp.Status, body)
	}
	return string(body)
}

// TestObserved checks the metrics and the trace of one pod's life.
func TestObserved(t *testing.T) {
	t.Parallel()
	sent, dir := collect(t)
	socket := dir + "/metrics.sock"
	k := start(t, `metrics.address = "unix://`+socket+`"`, `tracing.endpoint = "unix://`+dir+`/otlp"`,
		"tracing.sampling_rate_per_million = 0")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("socket of the metrics = %v, %v, want mode 0660", info, err)
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	cfg := k.podConfig()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	traced := metadata.AppendToOutgoingContext(k.ctx(), "traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	r, err := k.Runtime.RunPodSandbox(traced, &cri.RunPodSandboxRequest{Config: cfg})
	k.ok("RunPodSandbox", err)
	container, _ := k.runIn(r.PodSandboxId, cfg, []string{"sleep", "10000"})
	body := k.scrape(socket)
	for _, want := range []string{`podd_pods{state="ready"} 1`, `podd_containers{state="running"} 1`, "podd_images 1",
		"podd_network_ready 1", `podd_problems{kind="exit"} 0`, `podd_sessions{kind="exec"} 0`,
		`podd_runtime_handler_ready{handler="runc"} 1`, "podd_quarantined_records 0", "podd_pending_cleanups 0"} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("metrics while the pod runs: no line %s, want it", want)
		}
	}
	_, err = k.Runtime.StopContainer(k.ctx(), &cri.StopContainerRequest{ContainerId: container})
	k.ok("StopContainer", err)
	k.stopPod(r.PodSandboxId)
	k.removePod(r.PodSandboxId)
	body = k.scrape(socket)
	if want := `podd_container_exits_total{reason="Error"} 1`; !strings.Contains(body, "\n"+want+"\n") {
		t.Errorf("metrics after the removal: no line %s, want it", want)
	}
	for verb, stages := range map[string][]string{
		"RunPodSandbox":    {"record", "namespaces", "network", "files", "infra container", "sync"},
		"CreateContainer":  {"record", "rootfs", "spec", "create"},
		"StartContainer":   {"start"},
		"StopContainer":    {"kill"},
		"StopPodSandbox":   {"detach from network", "unpin namespaces"},
		"RemovePodSandbox": {"remove record"},
	} {
		for _, s := range stages {
			if want := `podd_operation_stage_duration_seconds_count{handler="runc",operation="` + verb +
				`",outcome="ok",stage="` + s + `"} 1`; !strings.Contains(body, want) {
				t.Errorf("metrics after the removal: no line %s, want it", want)
			}
		}
		if want := `podd_rpc_duration_seconds_count{code="OK",method="` + verb + `"} 1`; !strings.Contains(body, want) {
			t.Errorf("metrics after the removal: no line %s, want it", want)
		}
	}
	for _, id := range []string{r.PodSandboxId, container, cfg.Metadata.Name, cfg.Metadata.Uid} {
		if strings.Contains(body, id) {
			t.Errorf("metrics contain %q, want no ids or names of pods", id)
		}
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	k.ok("lint", err)
	for _, p := range problems {
		t.Errorf("promlint: %s: %s, want no problem", p.Metric, p.Text)
	}
	if t.Failed() {
		t.Log(body)
	}
	k.ok("stop", k.Stop()) // which sends the last spans
	k.checkTrace(sent, trace)
	k.ok("start", k.Start(k.ctx()))
}

// checkTrace fails the test unless the spans are those of the one call with a sampled trace.
func (k *kubelet) checkTrace(sent *spans, trace string) {
	k.Helper()
	calls, pods := sent.find(trace, "runtime.v1.RuntimeService/RunPodSandbox"), sent.find(trace, "podd.RunPodSandbox")
	if len(calls) != 1 || len(pods) != 1 {
		k.Fatalf("%d spans of the call and %d of the operation, want 1 of each", len(calls), len(pods))
	}
	if hex.EncodeToString(calls[0].GetParentSpanId()) != "00f067aa0ba902b7" ||
		!slices.Equal(pods[0].GetParentSpanId(), calls[0].GetSpanId()) {
		k.Errorf("call = %v, operation = %v, want the call's parent 00f067aa0ba902b7 and the operation's parent the call",
			calls[0], pods[0])
	}
	stages := []string{"record", "namespaces", "network", "files", "infra container", "plugins", "sync"}
	for _, stage := range stages {
		found := sent.find(trace, "podd.RunPodSandbox/"+stage)
		if len(found) != 1 || !slices.Equal(found[0].GetParentSpanId(), pods[0].GetSpanId()) ||
			found[0].GetStartTimeUnixNano() < pods[0].GetStartTimeUnixNano() ||
			found[0].GetEndTimeUnixNano() > pods[0].GetEndTimeUnixNano() {
			k.Errorf("stage %s = %v, want one span within %v", stage, found, pods[0])
		}
	}
	if want := len(stages) + 2; len(sent.all) != want {
		k.Errorf("spans = %d, want %d", len(sent.all), want)
	}
}
