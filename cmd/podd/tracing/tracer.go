// Package tracing sends spans to an OpenTelemetry collector: one for each call that changes something, with a child for
// each operation, with a child for each stage. If a call has a traceparent (W3C), its span is a child of the kubelet's.
//
// Spans contain names and ids of pods and containers and the outcome, but neither requests nor error texts. The package
// is unused unless an endpoint is configured. Only the daemon's wiring calls it.
//
// It uses OpenTelemetry's API and protocol messages, but not its SDK and exporter, which cost a daemon 1 MB or more of
// memory even if tracing is off. podd creates spans only when they are complete, so it needs little of them.
package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Tracer queues spans and sends them in the background.
type Tracer struct {
	// below is the exclusive upper bound of the random numbers of sampled traces, see newContext.
	below    uint64
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
	conn     *grpc.ClientConn
	// headers are sent with each request. They may be credentials.
	headers  metadata.MD
	options  []grpc.CallOption
	errors   *errorLog
	outcomes outcomes

	queue chan *tracepb.Span
	// stop is closed by Shutdown, done when send has returned. giveUp cancels sending, the context of exports.
	stop, done chan struct{}
	stopOnce   sync.Once
	sending    context.Context
	giveUp     context.CancelFunc
}

// New returns a Tracer. It connects when there are spans to send; without a collector only spans are lost. The caller
// must call Shutdown.
func New(cfg Config, version string, log logrus.FieldLogger) (*Tracer, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	about, err := resourceAttributes(os.Getenv, version, host)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	headers, err := cfg.allHeaders()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	conn, err := dial(cfg)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(about)) {
		pairs = append(pairs, name, about[name])
	}
	t := &Tracer{
		below:    uint64(cfg.SamplingRatePerMillion) * ((1 << 63) / million),
		resource: &resourcepb.Resource{Attributes: attributes(pairs...)},
		headers:  metadata.New(headers),
		scope:    &commonpb.InstrumentationScope{Name: "podd", Version: version},
		conn:     conn,
		options:  cfg.callOptions(),
		errors:   &errorLog{log: log.WithField("endpoint", cfg.Endpoint)},
		queue:    make(chan *tracepb.Span, maxQueue),
		stop:     make(chan struct{}), done: make(chan struct{}),
	}
	t.sending, t.giveUp = context.WithCancel(context.Background())
	go t.send()
	return t, nil
}

// Shutdown sends the rest of the queue, until ctx ends.
func (t *Tracer) Shutdown(ctx context.Context) error {
	t.stopOnce.Do(func() { close(t.stop) })
	var err error
	select {
	case <-t.done:
	case <-ctx.Done():
		err = fmt.Errorf("send the last spans: %w", context.Cause(ctx))
	}
	t.giveUp()
	<-t.done
	return err
}

// newContext returns the ids of a new span below parent, or of a new trace if parent is invalid. A child is sampled
// if its parent is; a new trace by its random id and the sampling rate, as in OpenTelemetry's TraceIDRatioBased
// sampler.
func (t *Tracer) newContext(parent trace.SpanContext) trace.SpanContext {
	id, flags := parent.TraceID(), parent.TraceFlags()
	if !parent.IsValid() {
		binary.BigEndian.PutUint64(id[:8], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64()|1) // 0 is no id
		flags = trace.TraceFlags(0).WithSampled(binary.BigEndian.Uint64(id[8:])>>1 < t.below)
	}
	var span trace.SpanID
	binary.BigEndian.PutUint64(span[:], rand.Uint64()|1)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags})
}

// span is a finished span.
type span struct {
	self, parent trace.SpanContext
	name         string
	kind         tracepb.Span_SpanKind
	began        time.Time
	took         time.Duration
	attributes   []*commonpb.KeyValue
	// failed is the reason of a failure, one word; "" for success.
	failed string
}

// put queues a span. It does not block: a span that does not fit is dropped and logged.
func (t *Tracer) put(s span) {
	id, trace := s.self.SpanID(), s.self.TraceID()
	out := &tracepb.Span{
		TraceId: trace[:], SpanId: id[:], Name: s.name, Kind: s.kind, Attributes: s.attributes,
		Flags:             uint32(s.self.TraceFlags()),
		StartTimeUnixNano: uint64(s.began.UnixNano()), EndTimeUnixNano: uint64(s.began.Add(s.took).UnixNano()),
	}
	if parent := s.parent.SpanID(); parent.IsValid() {
		out.ParentSpanId = parent[:]
	}
	if s.failed != "" {
		out.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: s.failed}
	}
	select {
	case t.queue <- out:
	default:
		t.outcomes.dropped.Add(1)
		t.errors.add(errQueueFull)
	}
}

// attributes returns a list of string attributes, from alternating keys and values.
func attributes(pairs ...string) []*commonpb.KeyValue {
	var out []*commonpb.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: pairs[i+1]}}
		out = append(out, &commonpb.KeyValue{Key: pairs[i], Value: value})
	}
	return out
}
