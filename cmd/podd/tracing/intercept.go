package tracing

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// acts are how the names of calls begin that do something. The others are asked for every second, and only look.
var acts = []string{"RunPod", "Stop", "Remove", "Create", "Start", "Update", "Exec", "Pull", "Checkpoint", "Restore", "Reopen"}

// Unary is a gRPC interceptor that makes a span of each call that does something. It must be the outermost one, to see
// what the client is told.
func (t *Tracer) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	if !slices.ContainsFunc(acts, func(act string) bool { return strings.HasPrefix(method, act) }) {
		return handler(ctx, req)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	parent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier(md)))
	self, began := t.begin(parent), time.Now()
	resp, err := handler(trace.ContextWithSpanContext(ctx, self), req)
	if !self.IsSampled() {
		return resp, err
	}
	code, failed := status.Code(err), ""
	if code != codes.OK {
		failed = code.String()
	}
	t.put(span{
		self: self, parent: parent, name: service + "/" + method, kind: tracepb.Span_SPAN_KIND_SERVER, began: began, took: time.Since(began),
		attributes: attributes("rpc.system", "grpc", "rpc.service", service, "rpc.method", method, "podd.code", code.String()), failed: failed,
	})
	return resp, err
}

// carrier is a call's metadata as the propagator reads it.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier; an incoming call's metadata is not written to.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	var keys []string
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
