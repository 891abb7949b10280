package daemon

import (
	"context"

	"google.golang.org/grpc"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/cmd/podd/metrics"
	"github.com/podd-project/podd/cmd/podd/tracing"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/server"
)

// observers receive operations and calls. Those that are not configured are nil.
type observers struct {
	starts  *failedStarts
	metrics *metrics.Metrics
	tracer  *tracing.Tracer
	history *history.History
}

// operation returns the function that the engine calls for each finished operation, nil without observers.
func (o observers) operation() func(context.Context, operation.Operation) {
	var all []func(context.Context, operation.Operation)
	if o.starts != nil {
		all = append(all, o.starts.add)
	}
	if o.metrics != nil {
		all = append(all, o.metrics.ObserveOperation)
	}
	if o.tracer != nil {
		all = append(all, o.tracer.ObserveOperation)
	}
	if o.history != nil {
		all = append(all, o.history.Add)
	}
	if all == nil {
		return nil
	}
	return func(ctx context.Context, op operation.Operation) {
		for _, observe := range all {
			observe(ctx, op)
		}
	}
}

// grpcOptions returns the observers' options of the gRPC server, which must come before the server's own.
func (o observers) grpcOptions() []grpc.ServerOption {
	if o.tracer == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(o.tracer.Unary)}
}

// call returns the function that the server calls for each finished call, nil without metrics.
func (o observers) call() func(server.Call) {
	if o.metrics == nil {
		return nil
	}
	return o.metrics.ObserveCall
}

// exit returns the function that the engine calls for each exit of a container, nil without metrics.
func (o observers) exit() func(reason string) {
	if o.metrics == nil {
		return nil
	}
	return o.metrics.ObserveExit
}
