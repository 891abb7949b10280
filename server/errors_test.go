package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/spec"
)

func TestToStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"invalid":         {errdefs.ErrInvalidArgument, codes.InvalidArgument, "invalid argument"},
		"not found":       {errdefs.ErrNotFound, codes.NotFound, "not found"},
		"exists":          {errdefs.ErrAlreadyExists, codes.AlreadyExists, "already exists"},
		"precondition":    {errdefs.ErrFailedPrecondition, codes.FailedPrecondition, "failed precondition"},
		"unavailable":     {errdefs.ErrUnavailable, codes.Unavailable, "unavailable"},
		"exhausted":       {errdefs.ErrResourceExhausted, codes.ResourceExhausted, "resource exhausted"},
		"denied":          {errdefs.ErrPermissionDenied, codes.PermissionDenied, "permission denied"},
		"unauthenticated": {errdefs.ErrUnauthenticated, codes.Unauthenticated, ""},
		"aborted":         {errdefs.ErrAborted, codes.Aborted, "aborted"},
		"conflict":        {errdefs.ErrConflict, codes.Aborted, "conflict"},
		"range":           {errdefs.ErrOutOfRange, codes.OutOfRange, ""},
		"not implemented": {errdefs.ErrNotImplemented, codes.Unimplemented, ""},
		"internal":        {errdefs.ErrInternal, codes.Internal, ""},
		"data loss":       {errdefs.ErrDataLoss, codes.DataLoss, ""},
		"deadline":        {context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		"canceled":        {context.Canceled, codes.Canceled, ""},
		"no kind":         {errors.New("boom"), codes.Unknown, "boom"},
		"disk full": {
			&os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC}, codes.ResourceExhausted, "no space left",
		},
		"quota": {&os.PathError{Op: "write", Path: "/x", Err: syscall.EDQUOT}, codes.ResourceExhausted, ""},
		"a deadline inside": {
			fmt.Errorf("%w: %w", context.DeadlineExceeded, errdefs.ErrNotFound), codes.DeadlineExceeded, "",
		},
		"wrapped": {
			fmt.Errorf("set up network: %w", errdefs.ErrUnavailable), codes.Unavailable,
			"set up network: unavailable",
		},
		"joined": {errors.Join(errors.New("a"), errdefs.ErrAlreadyExists), codes.AlreadyExists, ""},
		"registry": {
			fmt.Errorf("pull: %w", image.ErrRegistryUnavailable), codes.Unknown,
			crierrors.ErrRegistryUnavailable.Error() + ": pull: ",
		},
		"registry timing out": {
			fmt.Errorf("%w: %w", image.ErrRegistryUnavailable, context.DeadlineExceeded), codes.Unknown,
			crierrors.ErrRegistryUnavailable.Error(),
		},
		"signature": {
			fmt.Errorf("pull: %w", image.ErrSignatureInvalid), codes.Unknown,
			crierrors.ErrSignatureValidationFailed.Error() + ": pull: ",
		},
		"read-only mounts": {
			fmt.Errorf("%w: mount", spec.ErrRRO), codes.Unknown, crierrors.ErrRROUnsupported.Error() + ": ",
		},
		"reason as it is": {
			fmt.Errorf("%w: details", crierrors.ErrRROUnsupported), codes.Unknown,
			crierrors.ErrRROUnsupported.Error() + ": details",
		},
		"image volume": {
			fmt.Errorf("create: %w: %w", crierrors.ErrImageVolumeMountFailed, errdefs.ErrNotFound), codes.Unknown,
			crierrors.ErrImageVolumeMountFailed.Error() + ": create: ",
		},
		"reason of a registry": {crierrors.ErrRegistryUnavailable, codes.Unknown, crierrors.ErrRegistryUnavailable.Error()},
		"reason of signatures": {
			crierrors.ErrSignatureValidationFailed, codes.Unknown, crierrors.ErrSignatureValidationFailed.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := toStatus(t.Context(), tt.err)
			if st.Code() != tt.code {
				t.Errorf("code %v, want %v", st.Code(), tt.code)
			}
			if tt.code == codes.Unknown && !strings.HasPrefix(st.Message(), tt.text) ||
				!strings.Contains(st.Message(), tt.text) {
				t.Errorf("message %q, want %q", st.Message(), tt.text)
			}
		})
	}
}

// TestErrorsOfCanceledCalls: an unknown error of a canceled call is Canceled.
func TestErrorsOfCanceledCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := toStatus(ctx, errors.New("signal: killed")).Code(); got != codes.Canceled {
		t.Errorf("code of an unknown error = %v, want Canceled", got)
	}
	if got := toStatus(ctx, errdefs.ErrNotFound).Code(); got != codes.NotFound {
		t.Errorf("code of a known kind = %v, want NotFound", got)
	}
}

func TestErrorsFitIntoAHeader(t *testing.T) {
	got := toStatus(t.Context(), errors.New("plugin said: \xff"+strings.Repeat("ä", 1<<20))).Message()
	if len(got) > maxMessageText+3 || !utf8.ValidString(got) || !strings.HasPrefix(got, "plugin said: ?ä") {
		t.Errorf("message %.40q has %d bytes, valid UTF-8 %v; want valid and bounded", got, len(got), utf8.ValidString(got))
	}
}
