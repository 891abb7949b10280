package tracing

import (
	"context"
	"errors"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A batch is sent when it has maxBatch spans or its first span is batchDelay old. exportTimeout bounds sending a batch,
// with retries. Meanwhile the queue can hold the spans of about 200 pod starts.
const (
	maxQueue      = 4096
	maxBatch      = 512
	batchDelay    = 2 * time.Second
	exportTimeout = 10 * time.Second
)

var errQueueFull = errors.New("queue is full: the collector is too slow")

// exportMethod is the OTLP/gRPC method for spans.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// retry is the gRPC service config with the retries that OTLP allows.
const retry = `{"methodConfig": [{"name": [{"service": "opentelemetry.proto.collector.trace.v1.TraceService"}],
	"retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.5s", "maxBackoff": "3s", "backoffMultiplier": 2,
		"retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"]}}]}`

// dial returns a client that connects at the first call.
func dial(cfg Config) (*grpc.ClientConn, error) {
	creds, err := cfg.transport()
	if err != nil {
		return nil, err
	}
	target := cfg.Endpoint
	if !strings.HasPrefix(target, unixPrefix) {
		target = "dns:///" + target
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(creds), grpc.WithDefaultServiceConfig(retry),
		grpc.WithUserAgent("podd"))
}

// callOptions returns the options of each request.
func (c Config) callOptions() []grpc.CallOption {
	if c.Compression != compressionGzip {
		return nil
	}
	return []grpc.CallOption{grpc.UseCompressor(gzip.Name)}
}

// send sends batches until Shutdown, and then the rest of the queue.
func (t *Tracer) send() {
	defer close(t.done)
	defer t.conn.Close()
	var batch []*tracepb.Span
	flush := func() {
		t.export(batch)
		batch = nil
	}
	var due <-chan time.Time // not nil while batch is not empty
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

// export sends a batch, or logs why it cannot. TracesData has the wire format of ExportTraceServiceRequest.
func (t *Tracer) export(batch []*tracepb.Span) {
	if len(batch) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(t.sending, exportTimeout)
	defer cancel()
	data := &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource: t.resource, ScopeSpans: []*tracepb.ScopeSpans{{Scope: t.scope, Spans: batch}},
	}}}
	ctx = metadata.NewOutgoingContext(ctx, t.headers)
	var answer emptypb.Empty // keeps the fields that it does not know
	err := t.conn.Invoke(ctx, exportMethod, data, &answer, t.options...)
	if err != nil {
		t.outcomes.failed.Add(uint64(len(batch)))
	} else {
		err = t.taken(len(batch), answer.ProtoReflect().GetUnknown())
	}
	if err != nil {
		t.errors.add(err)
	}
}
