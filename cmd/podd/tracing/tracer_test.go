package tracing

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/operation"
)

// receiver is an OTLP collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	// answer, if set, is asked before a batch is taken.
	answer func(ctx context.Context) error
	// rejects is how many spans of each batch it says that it rejects.
	rejects int64

	mu        sync.Mutex // guards the rest
	spans     []*tracepb.ResourceSpans
	encodings []string
}

// HandleRPC notes the compression of requests. It and the others implement stats.Handler.
func (r *receiver) HandleRPC(_ context.Context, s stats.RPCStats) {
	if h, ok := s.(*stats.InHeader); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.encodings = append(r.encodings, h.Compression)
	}
}

func (r *receiver) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (r *receiver) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (r *receiver) HandleConn(context.Context, stats.ConnStats)                       {}

// Export implements the collector's one method.
func (r *receiver) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error) {
	if r.answer != nil {
		if err := r.answer(ctx); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, req.GetResourceSpans()...)
	partial := &collector.ExportTracePartialSuccess{RejectedSpans: r.rejects, ErrorMessage: "full"}
	return &collector.ExportTraceServiceResponse{PartialSuccess: partial}, nil
}

// all returns the spans by name; a name must be there once.
func (r *receiver) all(t *testing.T) map[string]*tracepb.Span {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	spans := map[string]*tracepb.Span{}
	for _, rs := range r.spans {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				if spans[s.GetName()] != nil {
					t.Errorf("two spans %s", s.GetName())
				}
				spans[s.GetName()] = s
			}
		}
	}
	return spans
}

// listen serves r and returns its endpoint.
func listen(t *testing.T, r *receiver) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.StatsHandler(r))
	collector.RegisterTraceServiceServer(srv, r)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	return "http://" + l.Addr().String()
}

// tracer returns one that sends to endpoint, and what it logs.
func tracer(t *testing.T, cfg Config) (*Tracer, *bytes.Buffer) {
	t.Helper()
	log, out := logrus.New(), &bytes.Buffer{}
	log.SetOutput(out)
	tr, err := New(cfg, "v1", log)
	if err != nil {
		t.Fatal(err)
	}
	return tr, out
}

// flush ends the tracer, after which everything has been sent.
func flush(t *testing.T, tr *Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := tr.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func runPod() operation.Operation {
	return operation.Operation{
		Verb: "RunPodSandbox", Pod: "0123abcd", Name: "default/web-0", UID: "6f1c2f6e", Handler: "runc",
		Began: began, Took: operation.Duration(30 * time.Millisecond),
		Stages: []operation.Stage{{Name: "record", After: 0, Took: operation.Duration(time.Millisecond)},
			{Name: "network", After: operation.Duration(2 * time.Millisecond), Took: operation.Duration(25 * time.Millisecond)}},
		Done: true, Outcome: operation.OutcomeOK,
	}
}

func text(s *tracepb.Span) map[string]string { return attributesText(s.GetAttributes()) }

func attributesText(list []*commonpb.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range list {
		out[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

func times(t *testing.T, s *tracepb.Span, after, took time.Duration) {
	t.Helper()
	if got := time.Unix(0, int64(s.GetStartTimeUnixNano())).Sub(began); got != after {
		t.Errorf("%s begins after %v, want %v", s.GetName(), got, after)
	}
	if got := time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()); got != took {
		t.Errorf("%s takes %v, want %v", s.GetName(), got, took)
	}
}

func TestOperationAndItsStagesAreSpans(t *testing.T) {
	r := &receiver{}
	tr, out := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: million})
	tr.ObserveOperation(t.Context(), runPod())
	failed := runPod()
	failed.Verb, failed.Container, failed.Name = "CreateContainer", "c0ffee", "default/web-0/main"
	failed.Error, failed.Outcome = "secret", operation.OutcomeTimeout
	failed.Stages = failed.Stages[:1]
	tr.ObserveOperation(t.Context(), failed)
	flush(t, tr)
	spans := r.all(t)
	if len(spans) != 5 {
		t.Fatalf("spans %v", spans)
	}
	pod, network, create := spans["podd.RunPodSandbox"], spans["podd.RunPodSandbox/network"], spans["podd.CreateContainer"]
	times(t, pod, 0, 30*time.Millisecond)
	times(t, network, 2*time.Millisecond, 25*time.Millisecond)
	times(t, spans["podd.RunPodSandbox/record"], 0, time.Millisecond)
	if !bytes.Equal(network.GetParentSpanId(), pod.GetSpanId()) || !bytes.Equal(network.GetTraceId(), pod.GetTraceId()) {
		t.Error("a stage is not below its operation")
	}
	if len(pod.GetParentSpanId()) > 0 || bytes.Equal(create.GetTraceId(), pod.GetTraceId()) {
		t.Error("operations of different callers are one trace")
	}
	want := map[string]string{"k8s.namespace.name": "default", "k8s.pod.name": "web-0", "k8s.pod.uid": "6f1c2f6e",
		"podd.sandbox.id": "0123abcd", "podd.handler": "runc", "podd.outcome": "ok"}
	if d := cmp.Diff(want, text(pod)); d != "" {
		t.Errorf("attributes, -want +got:\n%s", d)
	}
	if got := text(create); got["k8s.container.name"] != "main" || got["container.id"] != "c0ffee" ||
		got["k8s.pod.name"] != "web-0" {
		t.Errorf("attributes = %v, want container main, id c0ffee, of pod web-0", got)
	}
	if pod.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET ||
		create.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("status of the pod's span = %v, of the container's = %v, want unset and error", pod.GetStatus(),
			create.GetStatus())
	}
	for _, rs := range r.spans {
		if name := attributesText(rs.GetResource().GetAttributes())["service.name"]; name != "podd" {
			t.Errorf("the service is %q", name)
		}
		if strings.Contains(rs.String(), "secret") {
			t.Error("the text of an error is sent")
		}
	}
	if out.Len() > 0 {
		t.Errorf("logged %s", out)
	}
}

// runtimeService answers what a kubelet asks and has an operation observed on the way.
type runtimeService struct {
	cri.UnimplementedRuntimeServiceServer
	tracer *Tracer
}

func (s runtimeService) RunPodSandbox(ctx context.Context, r *cri.RunPodSandboxRequest) (
	*cri.RunPodSandboxResponse, error) {
	s.tracer.ObserveOperation(context.WithoutCancel(ctx), runPod()) // as a creation, which goes on without its caller
	if r.GetRuntimeHandler() != "" {
		return nil, status.Error(codes.InvalidArgument, "secret")
	}
	return &cri.RunPodSandboxResponse{}, nil
}

func (runtimeService) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{}, nil
}

// kubelet returns a client of a CRI server that traces with tr.
func kubelet(t *testing.T, tr *Tracer) cri.RuntimeServiceClient {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.ChainUnaryInterceptor(tr.Unary))
	cri.RegisterRuntimeServiceServer(srv, runtimeService{tracer: tr})
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return cri.NewRuntimeServiceClient(conn)
}

// What the W3C's recommendation calls trace-id and parent-id; the last two digits say whether it is sampled.
const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
)

func TestCallsAreBelowTheKubeletsSpan(t *testing.T) {
	r := &receiver{}
	tr, _ := tracer(t, Config{Endpoint: listen(t, r)}) // podd itself begins no trace
	k := kubelet(t, tr)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-"+parentID+"-01")
	if _, err := k.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{RuntimeHandler: "x"}); err == nil {
		t.Error("no error")
	}
	if _, err := k.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{}); err != nil {
		t.Error(err)
	}
	for _, not := range []string{"", "00-" + traceID + "-" + parentID + "-00", "nonsense",
		"00-" + strings.Repeat("0", 32) + "-" + parentID + "-01"} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", not)
		if _, err := k.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{}); err != nil {
			t.Error(err)
		}
	}
	flush(t, tr)
	spans := r.all(t) // it complains of a second RunPodSandbox
	call, pod := spans["runtime.v1.RuntimeService/RunPodSandbox"], spans["podd.RunPodSandbox"]
	if len(spans) != 4 || call == nil || pod == nil {
		t.Fatalf("spans %v, want the call, the operation and two stages", spans)
	}
	if hex.EncodeToString(call.GetTraceId()) != traceID || hex.EncodeToString(call.GetParentSpanId()) != parentID {
		t.Errorf("trace %x, parent %x", call.GetTraceId(), call.GetParentSpanId())
	}
	if !bytes.Equal(pod.GetParentSpanId(), call.GetSpanId()) || call.GetKind() != tracepb.Span_SPAN_KIND_SERVER {
		t.Errorf("operation %v is not below call %v", pod, call)
	}
	wantCall := map[string]string{"rpc.system.name": "grpc", "rpc.method": "runtime.v1.RuntimeService/RunPodSandbox",
		"rpc.response.status_code": "INVALID_ARGUMENT", "error.type": "INVALID_ARGUMENT"}
	if d := cmp.Diff(wantCall, text(call)); d != "" {
		t.Errorf("attributes of the call, -want +got:\n%s", d)
	}
	if s := call.GetStatus(); s.GetCode() != tracepb.Status_STATUS_CODE_ERROR ||
		s.GetMessage() != "INVALID_ARGUMENT" {
		t.Errorf("status = %v, want error %v", s, codes.InvalidArgument)
	}
}

func TestSampling(t *testing.T) {
	for rate, want := range map[int][2]int{0: {0, 0}, million / 2: {300, 700}, million: {1000, 1000}} {
		r := &receiver{}
		tr, _ := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: rate})
		for range 1000 {
			tr.ObserveOperation(t.Context(), operation.Operation{Verb: "X", Began: began, Outcome: operation.OutcomeOK})
		}
		flush(t, tr)
		n := 0
		for _, rs := range r.spans {
			for _, ss := range rs.GetScopeSpans() {
				n += len(ss.GetSpans())
			}
		}
		if n < want[0] || n > want[1] {
			t.Errorf("%d per million: %d of 1000", rate, n)
		}
	}
}

func TestRetryWhenTheCollectorIsBusy(t *testing.T) {
	times := 0
	r := &receiver{answer: func(context.Context) error {
		if times++; times == 1 {
			return status.Error(codes.Unavailable, "busy")
		}
		return nil
	}}
	tr, out := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: million})
	tr.ObserveOperation(t.Context(), runPod())
	flush(t, tr)
	if spans := r.all(t); len(spans) != 3 || times != 2 || out.Len() > 0 {
		t.Errorf("spans %v after %d attempts, logged %s", spans, times, out)
	}
}

// TestShutdownIsBounded: a collector that takes the call and never answers does not keep the daemon.
func TestShutdownIsBounded(t *testing.T) {
	asked := make(chan struct{}, 10)
	r := &receiver{answer: func(ctx context.Context) error {
		asked <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}}
	tr, _ := tracer(t, Config{Endpoint: listen(t, r), SamplingRatePerMillion: million})
	tr.ObserveOperation(t.Context(), runPod())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tr.Shutdown(ctx) }()
	<-asked // it tries to send what is left
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	case <-time.After(exportTimeout - time.Second):
		t.Error("it waits longer than it may")
	}
}

func TestNoCollectorIsLoggedAndHarmless(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := "http://" + l.Addr().String()
	l.Close() // no process listens there now
	tr, out := tracer(t, Config{Endpoint: endpoint, SamplingRatePerMillion: million})
	tr.ObserveOperation(t.Context(), runPod())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = tr.Shutdown(ctx) // it may return the same error
	if n := strings.Count(out.String(), "failed to send spans"); n != 1 || !strings.Contains(out.String(), endpoint) {
		t.Errorf("%d entries, want 1 with %s:\n%s", n, endpoint, out)
	}
}

func TestTLS(t *testing.T) {
	r := &receiver{}
	endpoint := strings.Replace(listen(t, r), "http", "https", 1)
	tr, out := tracer(t, Config{Endpoint: endpoint, SamplingRatePerMillion: million})
	tr.ObserveOperation(t.Context(), runPod())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = tr.Shutdown(ctx)
	if spans := r.all(t); len(spans) > 0 || !strings.Contains(out.String(), "failed to send spans") {
		t.Errorf("%d spans were sent without TLS, want none and a log entry:\n%s", len(spans), out)
	}
}

func TestErrorsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := logrus.New(), &bytes.Buffer{}
		log.SetOutput(out)
		l := &errorLog{log: log}
		for range 10 {
			l.Handle(errors.New("refused"))
			time.Sleep(logInterval / 8)
		}
		n := strings.Count(out.String(), "failed to send spans")
		if n != 2 || !strings.Contains(out.String(), "suppressed=7") {
			t.Errorf("%d entries, want 2, the second with suppressed=7:\n%s", n, out)
		}
	})
}
