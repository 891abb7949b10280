package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/podd-project/podd/sandbox"
)

// The private methods on the CRI socket, for podd check: only the running daemon knows which resources belong to
// creations in progress. A request says whether to repair, a response is a list of findings as JSON.
const (
	debugServiceName  = "podd.v1.Debug"
	debugCheck        = "Check"
	debugVerifyImages = "VerifyImages"
)

// confirmDelay is the time between two checks. A resource that is being removed is found by the first only.
const confirmDelay = time.Second

// checker finds and repairs differences between the records and the machine.
type checker interface {
	Check(ctx context.Context) ([]sandbox.Finding, error)
	GC(ctx context.Context) error
	VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error)
}

// registerDebug registers the methods for podd check.
func registerDebug(r grpc.ServiceRegistrar, c checker) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: debugServiceName, HandlerType: (*checker)(nil),
		Methods: []grpc.MethodDesc{
			debugMethod(debugCheck, checkTwice),
			debugMethod(debugVerifyImages, func(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error) {
				return c.VerifyImages(ctx, repair)
			}),
		},
	}, c)
}

// findFunc is the implementation of a debug method.
type findFunc func(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error)

// debugMethod returns the description of a method that find implements.
func debugMethod(name string, find findFunc) grpc.MethodDesc {
	handle := func(
		srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		repair := &wrapperspb.BoolValue{}
		if err := decode(repair); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) {
			findings, err := find(ctx, srv.(checker), req.(*wrapperspb.BoolValue).GetValue())
			if err != nil {
				return nil, err
			}
			data, err := json.Marshal(findings)
			return wrapperspb.Bytes(data), err
		}
		if interceptor == nil {
			return handler(ctx, repair)
		}
		info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + debugServiceName + "/" + name}
		return interceptor(ctx, repair, info, handler)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handle}
}

// checkTwice returns what two checks found. With repair it collects garbage first.
func checkTwice(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error) {
	if repair {
		if err := c.GC(ctx); err != nil {
			return nil, err
		}
	}
	first, err := c.Check(ctx)
	if err != nil || len(first) == 0 {
		return first, err
	}
	select {
	case <-time.After(confirmDelay):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	second, err := c.Check(ctx)
	if err != nil {
		return nil, err
	}
	return common(first, second), nil
}

// common returns the findings that are in both a and b.
func common(a, b []sandbox.Finding) []sandbox.Finding {
	seen := map[sandbox.Finding]bool{}
	for _, f := range b {
		seen[f] = true
	}
	var both []sandbox.Finding
	for _, f := range a {
		if seen[f] {
			both = append(both, f)
		}
	}
	return both
}

// callDebug calls one of the methods of the daemon behind conn.
func callDebug(
	ctx context.Context, conn grpc.ClientConnInterface, method string, repair bool,
) ([]sandbox.Finding, error) {
	resp := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, "/"+debugServiceName+"/"+method, wrapperspb.Bool(repair), resp); err != nil {
		return nil, err
	}
	var findings []sandbox.Finding
	if err := json.Unmarshal(resp.GetValue(), &findings); err != nil {
		return nil, fmt.Errorf("decode the daemon's response: %w", err)
	}
	return findings, nil
}
