package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"
)

// Kinds of failed pulls that the kubelet tells apart. Both also are an errdefs kind.
var (
	// ErrRegistryUnavailable: the registry cannot be reached, is overloaded, broken, or sends nothing (errdefs.ErrUnavailable).
	ErrRegistryUnavailable = fmt.Errorf("registry is unavailable: %w", errdefs.ErrUnavailable)
	// ErrSignatureInvalid: the signature policy does not admit the image (errdefs.ErrPermissionDenied).
	ErrSignatureInvalid = fmt.Errorf("signature policy does not admit the image: %w", errdefs.ErrPermissionDenied)
)

// errStalled is the cause of a pull that its own watch ended.
var errStalled = errors.New("the registry sent too little for too long")

// errAbandoned is the cause of a pull that nobody waited for any more.
var errAbandoned = errors.New("nobody waits for this pull any more")

// errClosing is the cause of a pull that the store's Close ended.
var errClosing = errors.New("the image store is closing")

// maxErrorText caps the text of a pull's error: a registry chooses much of it.
const maxErrorText = 2 << 10

// pullError is a failed pull: text fit for logs and events, over the kind and the cause for errors.Is.
type pullError struct {
	text  string
	kind  error
	cause error
}

func (e *pullError) Error() string { return e.text }

func (e *pullError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

// newPullError gives the cause of a failed pull its kind, and a text without credentials.
func newPullError(ref string, auth *Auth, cause error) error {
	kind := kindOf(cause)
	text := cause.Error()
	if kind != nil && !errors.Is(cause, kind) {
		text = kindText(kind) + ": " + text
	}
	return &pullError{text: fmt.Sprintf("pull %s: %s", ref, scrub(text, auth)), kind: kind, cause: cause}
}

// kindText is the kind as it stands in front of the cause; for errdefs kinds their own short word.
func kindText(kind error) string {
	switch {
	case errors.Is(kind, ErrRegistryUnavailable):
		return "registry is unavailable"
	case errors.Is(kind, ErrSignatureInvalid):
		return "signature policy does not admit the image"
	case errors.Is(kind, errdefs.ErrUnauthenticated):
		return "wrong or missing credentials"
	}
	return kind.Error()
}

// kindOf finds what sort of failure err is, nil when nothing is known.
func kindOf(err error) error {
	switch {
	case isErrdef(err), errors.Is(err, ErrRegistryUnavailable), errors.Is(err, ErrSignatureInvalid):
		return nil // it already says so
	case errors.Is(err, errStalled):
		return ErrRegistryUnavailable
	case errors.Is(err, errAbandoned), errors.Is(err, errClosing), errors.Is(err, context.Canceled):
		return errdefs.ErrAborted
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return errdefs.ErrResourceExhausted
	case isSignature(err):
		return ErrSignatureInvalid
	}
	if kind := registryKind(err); kind != nil {
		return kind
	}
	if isNetwork(err) {
		return ErrRegistryUnavailable
	}
	return nil
}

func isErrdef(err error) bool {
	return errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) ||
		errdefs.IsUnavailable(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err)
}

func isSignature(err error) bool {
	var requirement signature.PolicyRequirementError
	var invalid signature.InvalidSignatureError
	return errors.As(err, &requirement) || errors.As(err, &invalid)
}

// registryKind reads the registry's own answer (distribution-spec, "Error Codes").
func registryKind(err error) error {
	var credentials docker.ErrUnauthorizedForCredentials
	if errors.As(err, &credentials) {
		return errdefs.ErrUnauthenticated
	}
	var status docker.UnexpectedHTTPStatusError
	if errors.Is(err, docker.ErrTooManyRequests) || errors.As(err, &status) && status.StatusCode >= 500 {
		return ErrRegistryUnavailable
	}
	if kind := codeKind(err); kind != nil {
		return kind
	}
	// The library keeps the type of an answer without a JSON body to itself; its text begins with the status.
	for _, answer := range []struct {
		text string
		kind error
	}{
		{"StatusCode: 401", errdefs.ErrUnauthenticated},
		{"StatusCode: 403", errdefs.ErrPermissionDenied},
		{"StatusCode: 404", errdefs.ErrNotFound},
		{"is blocked in", errdefs.ErrPermissionDenied}, // registries.conf: blocked = true
	} {
		if strings.Contains(err.Error(), answer.text) {
			return answer.kind
		}
	}
	return nil
}

func codeKind(err error) error {
	var coder errcode.ErrorCoder
	if !errors.As(err, &coder) {
		return nil
	}
	switch coder.ErrorCode().Descriptor().Value {
	case "MANIFEST_UNKNOWN", "NAME_UNKNOWN", "BLOB_UNKNOWN", "NOT_FOUND":
		return errdefs.ErrNotFound
	case "UNAUTHORIZED":
		return errdefs.ErrUnauthenticated
	case "DENIED":
		return errdefs.ErrPermissionDenied
	case "TOOMANYREQUESTS", "UNAVAILABLE":
		return ErrRegistryUnavailable
	}
	return nil
}

func isNetwork(err error) bool {
	var request *url.Error
	var network net.Error
	var operation *net.OpError
	return errors.As(err, &request) || errors.As(err, &operation) || errors.As(err, &network) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// urlQuery finds what follows a URL's path: the signature of a pre-signed redirect is a credential.
var urlQuery = regexp.MustCompile(`(https?://[^\s"?]+)\?[^\s"]*`)

// scrub takes credentials out of a text and bounds its length.
func scrub(text string, auth *Auth) string {
	text = urlQuery.ReplaceAllString(text, "$1?...")
	if auth != nil {
		for _, secret := range []string{auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken} {
			if len(secret) > 3 {
				text = strings.ReplaceAll(text, secret, "[hidden]")
			}
		}
	}
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}
