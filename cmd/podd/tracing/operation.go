package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/podd-project/podd/sandbox/operation"
)

// ObserveOperation creates the spans of a finished operation: its own and a child for each stage. ctx is that of the
// call that started the operation. It does not block.
func (t *Tracer) ObserveOperation(ctx context.Context, o operation.Operation) {
	parent := trace.SpanContextFromContext(ctx)
	self := t.newContext(parent)
	if !self.IsSampled() {
		return
	}
	name := "podd." + o.Verb
	for _, s := range o.Stages {
		t.put(span{
			self: t.newContext(self), parent: self, name: name + "/" + s.Name, kind: tracepb.Span_SPAN_KIND_INTERNAL,
			began: o.Began.Add(time.Duration(s.After)), took: time.Duration(s.Took),
		})
	}
	t.put(span{
		self: self, parent: parent, name: name, kind: tracepb.Span_SPAN_KIND_INTERNAL,
		began: o.Began, took: time.Duration(o.Took),
		attributes: operationAttributes(o), failed: outcomeText(o.Outcome),
	})
}

// operationAttributes returns the attributes of o, named as in OpenTelemetry's conventions for Kubernetes.
func operationAttributes(o operation.Operation) []*commonpb.KeyValue {
	namespace, rest, _ := strings.Cut(o.Name, "/")
	pod, container, _ := strings.Cut(rest, "/")
	pairs := []string{"k8s.namespace.name", namespace, "k8s.pod.name", pod, "k8s.pod.uid", o.UID,
		"podd.sandbox.id", o.Pod, "podd.handler", o.Handler, "podd.outcome", string(o.Outcome)}
	if o.Container != "" {
		pairs = append(pairs, "k8s.container.name", container, "container.id", o.Container)
	}
	return attributes(pairs...)
}

// outcomeText returns the outcome of a failed operation, "" for success.
func outcomeText(o operation.Outcome) string {
	if o == operation.OutcomeOK {
		return ""
	}
	return string(o)
}
