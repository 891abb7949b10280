package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/podd-project/podd/sandbox/operation"
)

// ObserveOperation creates the spans of a finished operation: its own and a child for each stage. ctx is that of the
// call that started the operation. It does not block.
func (t *Tracer) ObserveOperation(ctx context.Context, o operation.Operation) {
	name := "podd." + o.Verb
	ctx, span := t.tracer.Start(ctx, name, trace.WithTimestamp(o.Began), trace.WithAttributes(operationAttributes(o)...))
	for _, s := range o.Stages {
		began := o.Began.Add(time.Duration(s.After))
		_, stage := t.tracer.Start(ctx, name+"/"+s.Name, trace.WithTimestamp(began))
		stage.End(trace.WithTimestamp(began.Add(time.Duration(s.Took))))
	}
	if o.Outcome != operation.OutcomeOK {
		span.SetStatus(otelcodes.Error, string(o.Outcome))
		span.SetAttributes(semconv.ErrorTypeKey.String(string(o.Outcome)))
	}
	span.End(trace.WithTimestamp(o.Began.Add(time.Duration(o.Took))))
}

// operationAttributes returns the attributes of o, named as in OpenTelemetry's conventions for Kubernetes.
func operationAttributes(o operation.Operation) []attribute.KeyValue {
	namespace, rest, _ := strings.Cut(o.Name, "/")
	pod, container, _ := strings.Cut(rest, "/")
	all := []attribute.KeyValue{
		semconv.K8SNamespaceName(namespace), semconv.K8SPodName(pod), semconv.K8SPodUID(o.UID),
		attribute.String("podd.sandbox.id", o.Pod), attribute.String("podd.handler", o.Handler),
		attribute.String("podd.outcome", string(o.Outcome)),
	}
	if o.Request != "" {
		all = append(all, attribute.String("podd.request", o.Request))
	}
	if o.Container != "" {
		all = append(all, semconv.K8SContainerName(container), semconv.ContainerID(o.Container))
	}
	return all
}
