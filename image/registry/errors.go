package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"

	"github.com/podd-project/podd/image/layers"
)

// Kinds of failed pulls that the kubelet distinguishes. Both are an errdefs kind too.
var (
	// ErrRegistryUnavailable: the registry cannot be reached, is overloaded or broken, or sends nothing
	// (errdefs.ErrUnavailable).
	ErrRegistryUnavailable = fmt.Errorf("registry is unavailable: %w", errdefs.ErrUnavailable)
	// ErrSignatureInvalid: the signature policy rejects the image (errdefs.ErrPermissionDenied).
	ErrSignatureInvalid = fmt.Errorf("signature policy does not admit the image: %w", errdefs.ErrPermissionDenied)
)

// ErrStalled is the cause of a pull that its stall watch ended.
var ErrStalled = errors.New("the registry sent too little for too long")

// ErrAbandoned is the cause of a pull that has lost its last caller.
var ErrAbandoned = errors.New("no caller waits for this pull")

// ErrClosing is the cause of a pull that Store.Close ended.
var ErrClosing = errors.New("the image store is closing")

// maxErrorText bounds the text of a pull's error, in bytes: a registry controls much of it.
const maxErrorText = 2 << 10

// Error is a failed pull: a text fit for logs and events, and the kind and the cause for errors.Is.
type Error struct {
	text  string
	kind  error
	cause error
}

// NewError returns an error with a text that has no secrets, a kind, which may be nil, and a cause.
func NewError(text string, kind, cause error) *Error {
	return &Error{text: text, kind: kind, cause: cause}
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() []error {
	if e.kind == nil {
		return []error{e.cause}
	}
	return []error{e.kind, e.cause}
}

// NewPullError classifies the cause of a failed pull and removes credentials from its text.
func NewPullError(ref string, auth *Auth, cause error) error {
	classified := Classify(cause)
	return &Error{
		text: fmt.Sprintf("pull %s: %s", ref, Scrub(classified.Error(), auth)), kind: KindOf(cause), cause: cause,
	}
}

// AfterMirrors adds the failures of mirrors, which were tried before, to the text of an error. Its kind stays.
func AfterMirrors(err error, failed []string) error {
	if err == nil || len(failed) == 0 {
		return err
	}
	kind := KindOf(err)
	if kind == nil && !HasKind(err) {
		kind = errdefs.ErrUnknown // whatever the text about the mirrors
	}
	return &Error{text: fmt.Sprintf("%v (mirrors failed before: %s)", Classify(err), strings.Join(failed, "; ")),
		kind: kind, cause: err}
}

// Classify adds its kind to an error that has none.
func Classify(cause error) error {
	kind := KindOf(cause)
	if kind == nil || errors.Is(cause, kind) {
		return cause
	}
	return &Error{text: kindText(kind) + ": " + cause.Error(), kind: kind, cause: cause}
}

// kindText returns the text that a kind has in front of the cause.
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

// KindOf classifies err; nil if it already has a kind or none is known.
func KindOf(err error) error {
	switch {
	case HasKind(err), errors.Is(err, ErrRegistryUnavailable), errors.Is(err, ErrSignatureInvalid):
		return nil // it already has a kind
	case errors.Is(err, ErrStalled):
		return ErrRegistryUnavailable
	case errors.Is(err, ErrAbandoned), errors.Is(err, ErrClosing), errors.Is(err, context.Canceled):
		return errdefs.ErrAborted
	case layers.IsFull(err), strings.Contains(err.Error(), layers.TooLarge):
		return errdefs.ErrResourceExhausted
	case isSignature(err):
		return ErrSignatureInvalid
	}
	if kind := registryKind(err); kind != nil {
		return kind
	}
	var file *fs.PathError
	var number syscall.Errno // a net.Error too
	switch {
	case isServer(err):
		return ErrRegistryUnavailable
	case errors.As(err, &file), errors.As(err, &number) && number != syscall.ECONNRESET:
		// the node's: a key of the signature policy, certificates, the disk
		return errdefs.ErrFailedPrecondition
	case isNetwork(err):
		return ErrRegistryUnavailable
	}
	return nil
}

func HasKind(err error) bool {
	return errdefs.IsInvalidArgument(err) || errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) ||
		errdefs.IsUnavailable(err) || errdefs.IsPermissionDenied(err) || errdefs.IsUnauthorized(err) ||
		errdefs.IsResourceExhausted(err) || errdefs.IsAborted(err) || errdefs.IsUnknown(err)
}

func isSignature(err error) bool {
	var requirement signature.PolicyRequirementError
	var invalid signature.InvalidSignatureError
	return errors.As(err, &requirement) || errors.As(err, &invalid)
}

// registryKind classifies the registry's response (distribution-spec, "Error Codes").
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
	// The library does not export the type of a response without a JSON body; its text begins with the status.
	for _, answer := range []struct {
		text string
		kind error
	}{
		{"StatusCode: 401", errdefs.ErrUnauthenticated},
		{"StatusCode: 403", errdefs.ErrPermissionDenied},
		{"StatusCode: 404", errdefs.ErrNotFound},
		{"StatusCode: 429", ErrRegistryUnavailable},    // of the first request to a registry
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

// isServer reports whether err is of a request or a connection.
func isServer(err error) bool {
	var request *url.Error
	var operation *net.OpError
	var name *net.DNSError
	return errors.As(err, &request) || errors.As(err, &operation) || errors.As(err, &name)
}

func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// hidden lists patterns that must not appear in errors, with their replacements. A quoted text may have escaped quotes.
// They are compiled when there is an error: the program starts itself for every layer of a pull.
var hidden = sync.OnceValue(func() []hiding {
	return []hiding{
		// The user information of a URL, and its query: the signature of a pre-signed redirect is a credential.
		{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s"/?#@]*@`), "$1"},
		{regexp.MustCompile(`"([A-Za-z][A-Za-z0-9+.-]*://[^\s"?#]*)\?(?:\\.|[^"\\])*`), `"$1?...`},
		{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://[^\s"?#]*)\?(?:\\.|[^\s"\\])*`), "$1?..."},
		// The answer of a server that is not a registry: a challenge can name any server that the node reaches.
		{regexp.MustCompile(`(body start|StatusCode: \d+,) "(?:\\.|[^"\\])*"`), "$1 [hidden]"},
		{regexp.MustCompile(`(error parsing HTTP \d+ response body: ).*`), "$1[hidden]"},
		// The output of a credential helper.
		{regexp.MustCompile(`(?i)("Secret")\s*:\s*"(?:\\.|[^"\\])*"?`), "$1:[hidden]"},
	}
})

type hiding struct {
	pattern     *regexp.Regexp
	replacement string
}

// HideSecrets returns a text for errors or logs without the secrets that can be recognized by their form: user
// information and queries of URLs, answers of servers that are not registries, and secrets of credential helpers.
func HideSecrets(text string) string {
	for _, h := range hidden() {
		text = h.pattern.ReplaceAllString(text, h.replacement)
	}
	return text
}

// Scrub removes credentials from a text and bounds its length. A text with one is hidden as a whole: a gap in a
// sentence that the reader knows would tell the word. The text of its kind stays, which podd has put in front.
func Scrub(text string, auth *Auth) string {
	kind := ""
	for _, k := range []error{ErrRegistryUnavailable, ErrSignatureInvalid, errdefs.ErrUnauthenticated} {
		if rest, ok := strings.CutPrefix(text, kindText(k)+": "); ok {
			kind, text = kindText(k)+": ", rest
		}
	}
	text = HideSecrets(text)
	if auth != nil {
		for _, secret := range []string{auth.Password, auth.Auth, auth.IdentityToken, auth.RegistryToken} {
			if len(secret) > 3 && strings.Contains(text, secret) {
				text = "[hidden: the text has credentials]"
			}
		}
	}
	text = kind + text
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	return text
}
