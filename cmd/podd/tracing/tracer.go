// Package tracing owns the spans that podd sends: one for each call that changes something, below that one for each
// operation and its stages. They are children of the kubelet's span when the call brings one (W3C traceparent).
//
// A span says which pod and container it is about, by name and id, and how it ended: nothing of a request's content, and
// no error's text. Nothing of it exists unless an endpoint is configured. Only the daemon's wiring calls it.
//
// It speaks OpenTelemetry's protocol with the project's own API and messages, and without its SDK and exporter: what podd
// has to tell is complete when it is told, and those two cost every daemon a megabyte or more, traced or not.
package tracing

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Tracer makes spans and sends them in the background.
type Tracer struct {
	// below is how small a random number must be for a trace to be sampled; see begin.
	below      uint64
	resource   *resourcepb.Resource
	scope      *commonpb.InstrumentationScope
	conn       *grpc.ClientConn
	complaints *complaints

	queue chan *tracepb.Span
	// stop is closed by Shutdown, done when the last span was sent or given up; sending ends with giveUp.
	stop, done chan struct{}
	stopOnce   sync.Once
	sending    context.Context
	giveUp     context.CancelFunc
}

// New returns a tracer. It connects when there is something to send: a collector that is away costs spans and nothing else.
// Whoever has made it must Shutdown.
func New(cfg Config, version string, log logrus.FieldLogger) (*Tracer, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	conn, err := dial(cfg)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := &Tracer{
		below:      uint64(cfg.SamplingRatePerMillion) * ((1 << 63) / million),
		resource:   &resourcepb.Resource{Attributes: attributes("service.name", "podd", "service.version", version, "host.name", host)},
		scope:      &commonpb.InstrumentationScope{Name: "podd", Version: version},
		conn:       conn,
		complaints: &complaints{log: log.WithField("endpoint", cfg.Endpoint)},
		queue:      make(chan *tracepb.Span, maxQueue),
		stop:       make(chan struct{}), done: make(chan struct{}),
	}
	t.sending, t.giveUp = context.WithCancel(context.Background())
	go t.send()
	return t, nil
}

// Shutdown sends what is left, until ctx ends.
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

// begin makes the identity of a new span below parent, which may be none. A sampled parent's children are sampled, and
// of the traces that begin here as many as are configured: by the trace's random id, as OpenTelemetry's libraries do.
func (t *Tracer) begin(parent trace.SpanContext) trace.SpanContext {
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

// span is what of a span is known once it has ended.
type span struct {
	self, parent trace.SpanContext
	name         string
	kind         tracepb.Span_SpanKind
	began        time.Time
	took         time.Duration
	attributes   []*commonpb.KeyValue
	// failed is how it failed, in a word; "" when it did not.
	failed string
}

// put queues a span. It never waits: what is too much is dropped, and complained of.
func (t *Tracer) put(s span) {
	id, trace := s.self.SpanID(), s.self.TraceID()
	out := &tracepb.Span{
		TraceId: trace[:], SpanId: id[:], Name: s.name, Kind: s.kind, Attributes: s.attributes, Flags: uint32(s.self.TraceFlags()),
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
		t.complaints.say(errQueueFull)
	}
}

// attributes makes a list of pairs of strings.
func attributes(pairs ...string) []*commonpb.KeyValue {
	var out []*commonpb.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, &commonpb.KeyValue{Key: pairs[i], Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: pairs[i+1]}}})
	}
	return out
}
