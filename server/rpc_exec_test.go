package server

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
)

func testExecSync(t *testing.T) {
	h := newHarness(t)
	h.engine.exec = oci.ExecResult{Stdout: []byte("out"), Stderr: []byte("err\xff"), Code: 3}
	for timeout, want := range map[int64]string{
		0: "0s", -5: "0s", 7: "7s", math.MaxInt64: (math.MaxInt64 / time.Second * time.Second).String(),
	} {
		r := must[*cri.ExecSyncResponse](t)(h.runtime.ExecSync(
			t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"ls", ""}, Timeout: timeout},
		))
		if string(r.GetStdout()) != "out" || string(r.GetStderr()) != "err\xff" || r.GetExitCode() != 3 {
			t.Errorf("ExecSync = %v, want out, err\xff and 3", r)
		}
		calls := h.engine.log()
		want := "ExecSync " + runningID + " [ls ] " + want
		if got := calls[len(calls)-1]; got != want {
			t.Errorf("timeout %d: call %q, want %q", timeout, got, want)
		}
	}
	h.engine.fail["ExecSync"] = fmt.Errorf("command timed out: %w", context.DeadlineExceeded)
	_, err := h.runtime.ExecSync(
		t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"sleep"}, Timeout: 1},
	)
	wantCode(t, err, codes.DeadlineExceeded)
	for _, cmd := range [][]string{nil, {}, {""}, {"a", "b\x00"}} {
		_, err := h.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: cmd})
		wantCode(t, err, codes.InvalidArgument, "cmd")
	}
}

// TestExecSyncOutputFitsTheMessage: a client that accepts 16 MiB gets a response even if both outputs are that large.
func TestExecSyncOutputFitsTheMessage(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct{ out, err, wantOut, wantErr int }{
		{3, 5, 3, 5},
		{16 * mib, 0, 16*mib - 1<<10, 0},
		{0, 16 * mib, 0, 16*mib - 1<<10},
		{16 * mib, 16 * mib, 8*mib - 512, 8*mib - 512},
		{16 * mib, 1, 16*mib - 1<<10 - 1, 1},
		{1, 16 * mib, 1, 16*mib - 1<<10 - 1},
	} {
		h := newHarness(t)
		h.engine.exec = oci.ExecResult{
			Stdout: bytes.Repeat([]byte("o"), tt.out), Stderr: bytes.Repeat([]byte("e"), tt.err),
			Code: math.MinInt32,
		}
		r := must[*cri.ExecSyncResponse](t)(
			h.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: runningID, Cmd: []string{"yes"}}),
		)
		if len(r.GetStdout()) != tt.wantOut || len(r.GetStderr()) != tt.wantErr {
			t.Errorf("output of %d and %d bytes: got %d and %d, want %d and %d",
				tt.out, tt.err, len(r.GetStdout()), len(r.GetStderr()), tt.wantOut, tt.wantErr)
		}
	}
}

func testExec(t *testing.T) {
	h := newHarness(t)
	req := &cri.ExecRequest{ContainerId: runningID[:4], Cmd: []string{"sh"}, Tty: true, Stdin: true, Stdout: true}
	if url := must[*cri.ExecResponse](t)(h.runtime.Exec(t.Context(), req)).GetUrl(); url != "http://exec" {
		t.Errorf("url = %q, want %q", url, "http://exec")
	}
	req.ContainerId = runningID
	if !proto.Equal(h.streamer.exec, req) {
		t.Errorf("streamer got %v, want %v", h.streamer.exec, req)
	}
	for name, tt := range map[string]struct {
		req  *cri.ExecRequest
		code codes.Code
	}{
		"no command": {&cri.ExecRequest{ContainerId: runningID, Stdout: true}, codes.InvalidArgument},
		"no stream":  {&cri.ExecRequest{ContainerId: runningID, Cmd: []string{"sh"}}, codes.InvalidArgument},
		"tty with stderr": {
			&cri.ExecRequest{ContainerId: runningID, Cmd: []string{"sh"}, Tty: true, Stdout: true, Stderr: true},
			codes.InvalidArgument,
		},
		"absent": {&cri.ExecRequest{ContainerId: "ffff", Cmd: []string{"sh"}, Stdout: true}, codes.NotFound},
		"exited": {
			&cri.ExecRequest{ContainerId: exitedID, Cmd: []string{"sh"}, Stdout: true}, codes.FailedPrecondition,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.runtime.Exec(t.Context(), tt.req)
			wantCode(t, err, tt.code)
		})
	}
}

func testAttach(t *testing.T) {
	h := newHarness(t)
	req := &cri.AttachRequest{ContainerId: runningID[:4], Stdin: true, Stdout: true, Stderr: true}
	if url := must[*cri.AttachResponse](t)(h.runtime.Attach(t.Context(), req)).GetUrl(); url != "http://attach" {
		t.Errorf("url = %q, want %q", url, "http://attach")
	}
	req.ContainerId = runningID
	if !proto.Equal(h.streamer.attach, req) {
		t.Errorf("streamer got %v, want %v", h.streamer.attach, req)
	}
	for name, tt := range map[string]struct {
		req  *cri.AttachRequest
		code codes.Code
	}{
		"no stream": {&cri.AttachRequest{ContainerId: runningID}, codes.InvalidArgument},
		"absent":    {&cri.AttachRequest{ContainerId: "ffff", Stdin: true}, codes.NotFound},
		"exited":    {&cri.AttachRequest{ContainerId: exitedID, Stdin: true}, codes.FailedPrecondition},
		"tty of a container without": {
			&cri.AttachRequest{ContainerId: runningID, Stdout: true, Tty: true}, codes.InvalidArgument,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.runtime.Attach(t.Context(), tt.req)
			wantCode(t, err, tt.code)
		})
	}
}
