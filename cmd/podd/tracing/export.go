package tracing

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

var errQueueFull = errors.New("queue is full: the collector is too slow")

// counter counts spans by outcome, and logs why spans are lost.
type counter struct {
	errors *errorLog
	// queued are spans that wait or are being sent.
	queued                          atomic.Int64
	sent, dropped, failed, rejected atomic.Uint64
}

func (c *counter) outcomes() map[string]uint64 {
	return map[string]uint64{
		"sent": c.sent.Load(), "dropped": c.dropped.Load(), "failed": c.failed.Load(), "rejected": c.rejected.Load(),
	}
}

// processor is the SDK's queue, which drops spans without a word if it is full.
type processor struct {
	sdk.SpanProcessor
	*counter
}

// OnEnd queues a sampled span, or drops it. It does not block.
func (p processor) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if p.queued.Add(1) > maxQueue {
		p.queued.Add(-1)
		p.dropped.Add(1)
		p.errors.Handle(errQueueFull)
		return
	}
	p.SpanProcessor.OnEnd(s)
}

// exporter is the SDK's exporter.
type exporter struct {
	sdk.SpanExporter
	*counter
}

// rejections is the key of a context, for the number of spans that the collector rejects.
type rejections struct{}

// ExportSpans sends a batch, counts its spans, and logs why they are lost.
func (e exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	rejected := int64(-1) // not answered
	err := e.SpanExporter.ExportSpans(context.WithValue(ctx, rejections{}, &rejected), spans)
	e.queued.Add(-int64(len(spans)))
	if err != nil && rejected != 0 { // a reason without rejected spans is a remark
		e.errors.Handle(err)
	}
	if rejected < 0 {
		e.failed.Add(uint64(len(spans)))
	} else {
		lost := min(uint64(rejected), uint64(len(spans)))
		e.rejected.Add(lost)
		e.sent.Add(uint64(len(spans)) - lost)
	}
	return nil
}

// option makes the exporter's client note how many spans the collector rejects.
func (c *counter) option() otlptracegrpc.Option {
	return otlptracegrpc.WithDialOption(grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, options...)
		answer, ok := reply.(*collector.ExportTraceServiceResponse)
		if rejected, counted := ctx.Value(rejections{}).(*int64); err == nil && ok && counted {
			*rejected = max(answer.GetPartialSuccess().GetRejectedSpans(), 0)
		}
		return err
	}))
}
