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

// The private methods on the CRI's socket: podd check asks the running daemon, which alone can tell what is being made at
// the moment. The requests say whether to repair, the answers are lists of findings as JSON.
const (
	debugServiceName  = "podd.v1.Debug"
	debugCheck        = "Check"
	debugVerifyImages = "VerifyImages"
)

// confirmDelay is how long after the first look the second one follows: what is being removed is found once only.
const confirmDelay = time.Second

// checker is the engine as podd check needs it.
type checker interface {
	Check(ctx context.Context) ([]sandbox.Finding, error)
	Collect(ctx context.Context) error
	VerifyImages(ctx context.Context, mark bool) ([]sandbox.Finding, error)
}

// registerDebug serves podd check.
func registerDebug(r grpc.ServiceRegistrar, c checker) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: debugServiceName, HandlerType: (*checker)(nil),
		Methods: []grpc.MethodDesc{
			debugMethod(debugCheck, answerCheck),
			debugMethod(debugVerifyImages, func(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error) {
				return c.VerifyImages(ctx, repair)
			}),
		},
	}, c)
}

// debugMethod makes a method out of what finds something, and repairs.
func debugMethod(name string, find func(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error)) grpc.MethodDesc {
	handle := func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
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
		return interceptor(ctx, repair, &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + debugServiceName + "/" + name}, handler)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handle}
}

// answerCheck returns what was found twice. Of repairs a running daemon does what its garbage collection does.
func answerCheck(ctx context.Context, c checker, repair bool) ([]sandbox.Finding, error) {
	if repair {
		if err := c.Collect(ctx); err != nil {
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

// common returns those of a that are in b too.
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

// ask has the daemon behind conn check, and repair, with one of the methods.
func ask(ctx context.Context, conn grpc.ClientConnInterface, method string, repair bool) ([]sandbox.Finding, error) {
	answer := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, "/"+debugServiceName+"/"+method, wrapperspb.Bool(repair), answer); err != nil {
		return nil, err
	}
	var findings []sandbox.Finding
	if err := json.Unmarshal(answer.GetValue(), &findings); err != nil {
		return nil, fmt.Errorf("read the daemon's answer: %w", err)
	}
	return findings, nil
}
