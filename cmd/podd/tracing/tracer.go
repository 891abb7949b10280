// Package tracing sends spans to an OpenTelemetry collector: one for each call that changes something, with a child for
// each operation, with a child for each stage. If a call has a traceparent (W3C), its span is a child of the kubelet's.
//
// Spans contain names and ids of pods and containers and the outcome, but neither requests nor error texts. The package
// starts nothing unless an endpoint is configured. Only the daemon's wiring calls it.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// A batch is sent when it has maxBatch spans or its first span is batchDelay old. exportTimeout bounds sending a batch,
// with retries. In that time the queue can hold the spans of about 200 pod starts.
const (
	maxQueue      = 4096
	maxBatch      = 512
	batchDelay    = 2 * time.Second
	exportTimeout = 10 * time.Second
)

// Tracer queues spans and sends them in the background.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	client   sdk.SpanExporter
	sent     *counter
}

// New returns a Tracer. It connects when there are spans to send; without a collector only spans are lost. The caller
// must call Shutdown. OpenTelemetry's variables in podd's environment apply to what cfg does not set.
func New(cfg Config, version string, log logrus.FieldLogger) (*Tracer, error) {
	ctx := context.Background()
	about, err := describe(ctx, version)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	sent := &counter{errors: &errorLog{log: log.WithField("endpoint", cfg.Endpoint)}}
	otel.SetErrorHandler(sent.errors)
	variables := &complaints{}
	otel.SetLogger(logr.New(variables))
	defer otel.SetLogger(logr.Discard())
	options, err := cfg.options()
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	client, err := otlptracegrpc.New(ctx, append(options, sent.option())...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	if wrong := errors.Join(variables.found...); wrong != nil {
		_ = client.Shutdown(ctx)
		return nil, fmt.Errorf("tracing: variables of OpenTelemetry (OTEL_EXPORTER_OTLP_...): %w", wrong)
	}
	queue := sdk.NewBatchSpanProcessor(exporter{client, sent}, sdk.WithMaxQueueSize(maxQueue),
		sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(batchDelay), sdk.WithExportTimeout(exportTimeout))
	provider := sdk.NewTracerProvider(
		sdk.WithResource(about), sdk.WithSpanProcessor(processor{queue, sent}),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(float64(cfg.SamplingRatePerMillion)/million))))
	return &Tracer{provider, provider.Tracer("podd", trace.WithInstrumentationVersion(version)), client, sent}, nil
}

// describe returns the attributes of the process. Those of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME override
// them.
func describe(ctx context.Context, version string) (*resource.Resource, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return resource.New(ctx, resource.WithAttributes(
		semconv.ServiceName("podd"), semconv.ServiceVersion(version), semconv.HostName(host),
	), resource.WithFromEnv())
}

// Shutdown sends the rest of the queue, until ctx ends.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if err := t.provider.Shutdown(ctx); err != nil {
		_ = t.client.Shutdown(ctx) // cancels the request in progress
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// Spans returns how many spans were to be sent since the start, by outcome: sent; dropped, as the queue was full;
// failed, as the collector could not be reached; rejected by the collector.
func (t *Tracer) Spans() map[string]uint64 { return t.sent.outcomes() }
