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

// tracedPrefixes are prefixes of the methods that are traced. The kubelet calls the others every second, and they
// change nothing.
var tracedPrefixes = []string{
	"RunPod", "Stop", "Remove", "Create", "Start", "Update", "Exec", "Pull", "Checkpoint", "Restore", "Reopen",
}

// Unary is a gRPC interceptor that creates a span for each call that changes something. It must be the outermost one,
// to see the status that the client gets.
func (t *Tracer) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	if !slices.ContainsFunc(tracedPrefixes, func(p string) bool { return strings.HasPrefix(method, p) }) {
		return handler(ctx, req)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	parent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(ctx, carrier(md)))
	self, began := t.newContext(parent), time.Now()
	resp, err := handler(trace.ContextWithSpanContext(ctx, self), req)
	if !self.IsSampled() {
		return resp, err
	}
	code, failed := status.Code(err), ""
	if code != codes.OK {
		failed = code.String()
	}
	t.put(span{
		self: self, parent: parent, name: service + "/" + method, kind: tracepb.Span_SPAN_KIND_SERVER,
		began: began, took: time.Since(began), failed: failed,
		attributes: attributes(
			"rpc.system", "grpc", "rpc.service", service, "rpc.method", method, "podd.code", code.String()),
	})
	return resp, err
}

// carrier is a propagation.TextMapCarrier of a call's metadata.
type carrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	if v := metadata.MD(c).Get(key); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set implements propagation.TextMapCarrier. It is not used for incoming calls.
func (c carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c carrier) Keys() []string {
	var keys []string
	for k := range c {
		keys = append(keys, k)
	}
	return keys
}
