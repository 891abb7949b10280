package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/podd-project/podd/oci"
)

// Call is one finished RPC, for metrics.
type Call struct {
	// Method is the RPC's bare name, e.g. "RunPodSandbox".
	Method   string
	Code     codes.Code
	Duration time.Duration
}

// call is one running RPC.
type call struct {
	method string
	// id identifies the call in the log and in errors.
	id     string
	start  time.Time
	fields logrus.Fields
}

func newCall(fullMethod string, req any) *call {
	return &call{
		method: path.Base(fullMethod),
		id:     fmt.Sprintf("%08x", rand.Uint32()),
		start:  time.Now(),
		fields: requestFields(req),
	}
}

func (s *Server) interceptUnary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	c := newCall(info.FullMethod, req)
	defer func() {
		if p := recover(); p != nil {
			resp, err = nil, s.panicked(c, p)
		}
		err = s.finish(ctx, c, resp, err)
	}()
	if err := checkSize(req); err != nil {
		return nil, err
	}
	resp, err = handler(oci.WithRequest(ctx, c.id), req)
	return s.fit(c, resp), err
}

func (s *Server) interceptStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	c := newCall(info.FullMethod, nil)
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(c, p)
		}
		err = s.finish(stream.Context(), c, nil, err)
	}()
	return handler(srv, fittingStream{stream, s, c})
}

// panicked logs a panic and returns the error for the client. The panic's value is only logged if it is an error of the
// Go runtime: any other may contain a part of the request. The stack has addresses only.
func (s *Server) panicked(c *call, value any) error {
	what := fmt.Sprintf("a value of type %T", value)
	if e, ok := value.(runtime.Error); ok {
		what = e.Error()
	}
	s.deps.Log.WithFields(c.fields).WithFields(logrus.Fields{
		"method": c.method, "request": c.id, "panic": what, "stack": string(debug.Stack()),
	}).Error("RPC panicked")
	return status.Errorf(codes.Internal, "internal error: %s panicked, see podd's log for request %s", c.method, c.id)
}

// finish converts err to the client's status, writes the call's log line and updates the metrics.
func (s *Server) finish(ctx context.Context, c *call, resp any, err error) error {
	code := codes.OK
	if err != nil {
		// Not errors.As: a wrapped status is that of another gRPC service, such as a shim's.
		st, ok := err.(interface{ GRPCStatus() *status.Status })
		if !ok {
			err = toStatus(ctx, err).Err()
			st = err.(interface{ GRPCStatus() *status.Status })
		}
		code = st.GRPCStatus().Code()
	}
	took := time.Since(c.start)
	if s.deps.Observe != nil {
		s.deps.Observe(Call{Method: c.method, Code: code, Duration: took})
	}
	s.log(c, code, took, resp, err)
	return err
}

func (s *Server) log(c *call, code codes.Code, took time.Duration, resp any, err error) {
	log := s.deps.Log.WithFields(c.fields).WithFields(logrus.Fields{
		"method": c.method, "request": c.id, "duration": took.Round(time.Microsecond).String(),
	})
	if err == nil {
		log.WithFields(responseFields(resp)).Log(successLevel(c.method), "RPC done")
		return
	}
	level := failureLevel(c.method, code)
	if repeatsCalls(c.method) && level <= logrus.WarnLevel {
		held, now := s.failing.next(fmt.Sprint(c.method, c.fields["pod"], c.fields["container"], code), c.start)
		if held > 0 {
			log = log.WithField("repeated", held)
		}
		if !now {
			level = logrus.DebugLevel
		}
	}
	log.WithFields(logrus.Fields{"code": code.String(), logrus.ErrorKey: status.Convert(err).Message()}).
		Log(level, "RPC failed")
}

// repeatsCalls reports whether a kubelet makes the call again each second if it fails: probes and resizes.
func repeatsCalls(method string) bool {
	switch method {
	case "ExecSync", "UpdatePodSandboxResources", "UpdateContainerResources":
		return true
	}
	return false
}

func successLevel(method string) logrus.Level {
	if mutates(method) {
		return logrus.InfoLevel
	}
	return logrus.DebugLevel
}

// failureLevel returns error for unexpected failures and warning for those that the caller caused or must expect. It
// returns debug for reads of something absent (the kubelet queries objects that it has just removed), canceled reads
// (how streams end) and unimplemented methods (the kubelet polls them).
func failureLevel(method string, code codes.Code) logrus.Level {
	switch code {
	case codes.Unknown, codes.Internal, codes.DataLoss:
		return logrus.ErrorLevel
	case codes.Unimplemented:
		return logrus.DebugLevel
	case codes.NotFound, codes.Canceled:
		if !mutates(method) {
			return logrus.DebugLevel
		}
	}
	return logrus.WarnLevel
}

// mutates reports whether the method changes the node. ExecSync is left out: probes call it continually.
func mutates(method string) bool {
	switch method {
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "UpdatePodSandboxResources",
		"CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources",
		"ReopenContainerLog", "Exec", "Attach", "PortForward",
		"CheckpointContainer", "CheckpointPod", "RestorePod",
		"PullImage", "RemoveImage", "UpdateRuntimeConfig":
		return true
	}
	return false
}
