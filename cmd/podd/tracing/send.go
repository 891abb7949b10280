package tracing

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A batch is sent when it has maxBatch spans or its first is batchDelay old. The queue holds the spans of nearly 200 pods'
// starts while a batch is being sent, which may take exportTimeout with all repetitions.
const (
	maxQueue      = 4096
	maxBatch      = 512
	batchDelay    = 2 * time.Second
	exportTimeout = 10 * time.Second
)

var errQueueFull = errors.New("more spans than the collector takes")

// exportMethod is how OTLP/gRPC takes spans.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// retry repeats what OTLP says may be repeated.
const retry = `{"methodConfig": [{"name": [{"service": "opentelemetry.proto.collector.trace.v1.TraceService"}],
	"retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.5s", "maxBackoff": "3s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"]}}]}`

// dial makes a client that connects once it is used.
func dial(cfg Config) (*grpc.ClientConn, error) {
	target, creds := cfg.Endpoint, credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	if cfg.Insecure || strings.HasPrefix(target, unixPrefix) {
		creds = insecure.NewCredentials()
	}
	if !strings.HasPrefix(target, unixPrefix) {
		target = "dns:///" + target
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultServiceConfig(retry), grpc.WithUserAgent("podd"))
}

// send sends batches until Shutdown, and then what is left.
func (t *Tracer) send() {
	defer close(t.done)
	defer t.conn.Close()
	var batch []*tracepb.Span
	flush := func() {
		t.export(batch)
		batch = nil
	}
	var due <-chan time.Time // not nil while there is a batch
	for {
		select {
		case s := <-t.queue:
			if batch = append(batch, s); len(batch) == 1 {
				due = time.After(batchDelay)
			}
			if len(batch) == maxBatch {
				flush()
				due = nil
			}
		case <-due:
			flush()
			due = nil
		case <-t.stop:
			for len(t.queue) > 0 {
				if batch = append(batch, <-t.queue); len(batch) == maxBatch {
					flush()
				}
			}
			flush()
			return
		}
	}
}

// export sends one batch, or complains. TracesData is ExportTraceServiceRequest on the wire. The answer tells how many
// spans the collector did not want, which is its own affair.
func (t *Tracer) export(batch []*tracepb.Span) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.sending, exportTimeout)
	defer cancel()
	data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: t.scope, Spans: batch}},
	}}}
	if err := t.conn.Invoke(ctx, exportMethod, data, &emptypb.Empty{}); err != nil {
		t.complaints.say(err)
	}
}
