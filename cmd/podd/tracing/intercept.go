package tracing

import (
	"context"
	"slices"
	"strings"

	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/code"
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
// to see the status that the client gets. Attributes are named as in OpenTelemetry's conventions for RPC.
func (t *Tracer) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	name := strings.TrimPrefix(info.FullMethod, "/")
	_, method, _ := strings.Cut(name, "/")
	if !slices.ContainsFunc(tracedPrefixes, func(p string) bool { return strings.HasPrefix(method, p) }) {
		return handler(ctx, req)
	}
	md, _ := metadata.FromIncomingContext(ctx)
	parent := propagation.MapCarrier{}
	for _, key := range (propagation.TraceContext{}).Fields() {
		if v := md.Get(key); len(v) > 0 {
			parent[key] = v[0]
		}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, parent)
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(name)))
	defer span.End()
	resp, err := handler(ctx, req)
	c := status.Code(err)
	canonical := code.Code(c).String() // INVALID_ARGUMENT
	span.SetAttributes(semconv.RPCResponseStatusCode(canonical))
	if c != codes.OK {
		span.SetStatus(otelcodes.Error, canonical)
		span.SetAttributes(semconv.ErrorTypeKey.String(canonical))
	}
	return resp, err
}
