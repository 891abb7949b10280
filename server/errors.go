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

// maxMessageText caps an error's text, in bytes: it travels in an HTTP/2 header and ends in a pod event.
const maxMessageText = 8 << 10

// reason is a cri-api error reason: the kubelet finds it as the prefix of the message.
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

// kind is one kind of error and its code; the first that fits counts, so the context's come first: whatever else
// went wrong went wrong because time was up.
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

// isFull is true for a full disk, quota or inode table.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// toStatus turns any error into the gRPC status that the client gets. ctx is the call's: what failed while the
// caller was going away is the caller's doing.
func toStatus(ctx context.Context, err error) *status.Status {
	for _, r := range reasons() {
		if errors.Is(err, r.cause) {
			// The kubelet recognises reasons only in errors of code Unknown: remote_image.go strips that code
			// from the text and leaves every other one standing before the reason.
			return status.New(codes.Unknown, clip(withPrefix(err.Error(), r.reason.Error())))
		}
	}
	for _, k := range kinds() {
		if k.is(err) {
			return status.New(k.code, clip(err.Error()))
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return status.New(codes.Canceled, clip(err.Error()))
	}
	return status.New(codes.Unknown, clip(err.Error()))
}

func withPrefix(text, prefix string) string {
	if strings.HasPrefix(text, prefix+":") {
		return text
	}
	return prefix + ": " + text
}

// clip makes text fit for a header: valid UTF-8 of bounded length.
func clip(text string) string {
	if len(text) > maxMessageText {
		text = text[:maxMessageText] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}
