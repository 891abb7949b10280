package server

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/oci/spec"
)

// maxMessageText limits the text of an error, in bytes: it is sent in an HTTP/2 header and shown in a pod event.
const maxMessageText = 8 << 10

// reason is a cri-api error reason, which the kubelet recognises by the prefix of the message.
type reason struct{ cause, reason error }

func reasons() []reason {
	return []reason{
		{image.ErrRegistryUnavailable, crierrors.ErrRegistryUnavailable},
		{image.ErrSignatureInvalid, crierrors.ErrSignatureValidationFailed},
		{crierrors.ErrRegistryUnavailable, crierrors.ErrRegistryUnavailable},
		{crierrors.ErrSignatureValidationFailed, crierrors.ErrSignatureValidationFailed},
		{spec.ErrRRO, crierrors.ErrRROUnsupported},
		{crierrors.ErrRROUnsupported, crierrors.ErrRROUnsupported},
		{crierrors.ErrImageVolumeMountFailed, crierrors.ErrImageVolumeMountFailed},
	}
}

// kind is a kind of error and its code. The first match counts. The kinds of the context come first: when the deadline
// has passed, any other error follows from it.
type kind struct {
	is   func(error) bool
	code codes.Code
}

func kinds() []kind {
	return []kind{
		{errdefs.IsDeadlineExceeded, codes.DeadlineExceeded},
		{errdefs.IsCanceled, codes.Canceled},
		{errdefs.IsInvalidArgument, codes.InvalidArgument},
		{errdefs.IsOutOfRange, codes.OutOfRange},
		{errdefs.IsNotFound, codes.NotFound},
		{errdefs.IsAlreadyExists, codes.AlreadyExists},
		{errdefs.IsFailedPrecondition, codes.FailedPrecondition},
		{errdefs.IsConflict, codes.Aborted},
		{errdefs.IsAborted, codes.Aborted},
		{errdefs.IsPermissionDenied, codes.PermissionDenied},
		{errdefs.IsUnauthorized, codes.Unauthenticated},
		{errdefs.IsNotImplemented, codes.Unimplemented},
		{errdefs.IsResourceExhausted, codes.ResourceExhausted},
		{isFull, codes.ResourceExhausted},
		{errdefs.IsUnavailable, codes.Unavailable},
		{errdefs.IsDataLoss, codes.DataLoss},
		{errdefs.IsInternal, codes.Internal},
	}
}

// isFull reports whether the disk, quota or inode table is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// toStatus converts an error to the gRPC status for the client. An unknown error of a call that the client has canceled
// (ctx) is Canceled.
func toStatus(ctx context.Context, err error) *status.Status {
	for _, r := range reasons() {
		if errors.Is(err, r.cause) {
			// The kubelet recognises reasons only in errors of code Unknown: remote_image.go removes that code
			// from the text, and leaves any other code in front of the reason.
			return status.New(codes.Unknown, truncate(withPrefix(err.Error(), r.reason.Error())))
		}
	}
	for _, k := range kinds() {
		if k.is(err) {
			return status.New(k.code, truncate(err.Error()))
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return status.New(codes.Canceled, truncate(err.Error()))
	}
	return status.New(codes.Unknown, truncate(err.Error()))
}

func withPrefix(text, prefix string) string {
	if strings.HasPrefix(text, prefix+":") {
		return text
	}
	return prefix + ": " + text
}

// truncate makes text fit for a header: valid UTF-8 of bounded length.
func truncate(text string) string {
	if len(text) > maxMessageText {
		text = text[:maxMessageText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
