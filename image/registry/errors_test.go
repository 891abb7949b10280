package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/distribution/registry/api/errcode"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"
)

func TestKinds(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  error
	}{
		"dial": {&url.Error{Op: "Get", URL: "https://h.test/",
			Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, ErrRegistryUnavailable},
		"dns":          {&net.DNSError{Name: "h.test", IsNotFound: true}, ErrRegistryUnavailable},
		"cut off":      {fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), ErrRegistryUnavailable},
		"busy":         {docker.ErrTooManyRequests, ErrRegistryUnavailable},
		"500":          {docker.UnexpectedHTTPStatusError{StatusCode: 500}, ErrRegistryUnavailable},
		"limit":        {errcode.ErrorCodeTooManyRequests.WithMessage("slow down"), ErrRegistryUnavailable},
		"stalled":      {fmt.Errorf("%w (0 bytes)", ErrStalled), ErrRegistryUnavailable},
		"401":          {docker.ErrUnauthorizedForCredentials{Err: errors.New("no")}, errdefs.ErrUnauthenticated},
		"unauthorized": {errcode.ErrorCodeUnauthorized.WithMessage("no"), errdefs.ErrUnauthenticated},
		"denied":       {errcode.ErrorCodeDenied.WithMessage("no"), errdefs.ErrPermissionDenied},
		"429 of the first request": {errors.New(`pinging container registry h.test: StatusCode: 429, "x"`),
			ErrRegistryUnavailable},
		"text 404": {errors.New(`reading manifest: StatusCode: 404, "gone"`), errdefs.ErrNotFound},
		"key": {fmt.Errorf("Source image rejected: %w", &fs.PathError{Op: "open", Path: "/k", Err: syscall.EACCES}),
			errdefs.ErrFailedPrecondition},
		"blocked": {errors.New("registry h.test is blocked in /etc/containers/registries.conf"),
			errdefs.ErrPermissionDenied},
		"signature":       {signature.PolicyRequirementError("no"), ErrSignatureInvalid},
		"full":            {fmt.Errorf("writing: %w", syscall.ENOSPC), errdefs.ErrResourceExhausted},
		"quota":           {fmt.Errorf("writing: %w", syscall.EDQUOT), errdefs.ErrResourceExhausted},
		"closing":         {ErrClosing, errdefs.ErrAborted},
		"abandoned":       {ErrAbandoned, errdefs.ErrAborted},
		"kept":            {fmt.Errorf("x: %w", errdefs.ErrInvalidArgument), errdefs.ErrInvalidArgument},
		"read-only":       {os.NewSyscallError("mkdir", syscall.EROFS), errdefs.ErrFailedPrecondition},
		"two disks":       {&os.LinkError{Op: "rename", Err: syscall.EXDEV}, errdefs.ErrFailedPrecondition},
		"bad disk":        {fmt.Errorf("writing: %w", syscall.EIO), errdefs.ErrFailedPrecondition},
		"reset":           {fmt.Errorf("reading: %w", syscall.ECONNRESET), ErrRegistryUnavailable},
		"full over a net": {&url.Error{Op: "Get", URL: "https://h.test/", Err: syscall.ENOSPC}, errdefs.ErrResourceExhausted},
	} {
		err := NewPullError("h.test/x", nil, c.cause)
		if !errors.Is(err, c.want) || !errors.Is(err, c.cause) && !strings.Contains(name, "40") {
			t.Errorf("%s: error %v, want kind %v", name, err, c.want)
		}
		if !strings.HasPrefix(err.Error(), "pull h.test/x: ") {
			t.Errorf("%s: error %q, want the prefix %q", name, err, "pull h.test/x: ")
		}
	}
	odd := NewPullError("x", nil, errors.New("odd"))
	for _, kind := range []error{ErrRegistryUnavailable, ErrSignatureInvalid, errdefs.ErrNotFound, context.Canceled} {
		if errors.Is(odd, kind) {
			t.Errorf("an unknown failure is %v, want no kind", kind)
		}
	}
	if !errdefs.IsUnavailable(ErrRegistryUnavailable) || !errdefs.IsPermissionDenied(ErrSignatureInvalid) {
		t.Error("the sentinels have no errdefs kind")
	}
}

func TestScrub(t *testing.T) {
	got := Scrub(`Get "https://cdn.test/blob?X-Signature=abc&y=1": `+
		`someone http://h/x?token=1 https://us:urlpass@h.test/p/q `+
		`parse "http://h:x?q=\"escaped \"quoted": bad port decoding bearer token (last URL "http://h/", body start `+
		`"{\"of a node's \\ server"): x StatusCode: 404, "of a server": y {"Secret": "of a helper"} end `+
		"error parsing HTTP 403 response body: unexpected EOF: \"of a body\"", nil)
	for _, secret := range []string{"X-Signature", "token=1", "urlpass", "escaped", "quoted", "of a"} {
		if strings.Contains(got, secret) {
			t.Errorf("scrub = %q, want it without %q", got, secret)
		}
	}
	for _, kept := range []string{"https://cdn.test/blob", "someone", "https://h.test/p/q", "StatusCode: 404,", "end"} {
		if !strings.Contains(got, kept) {
			t.Errorf("scrub = %q, want it with %q", got, kept)
		}
	}
	if got := Scrub(strings.Repeat("é", 10000), nil); len(got) > maxErrorText+3 || strings.ContainsRune(got, '\ufffd') {
		t.Errorf("scrub = %d bytes, want at most %d of valid UTF-8", len(got), maxErrorText+3)
	}
}

// TestScrubCredentials: a text with credentials is hidden as a whole, so that its gap does not tell them; podd's own
// words about its kind stay, which tell nothing about them.
func TestScrubCredentials(t *testing.T) {
	const hidden, denied = "[hidden: the text has credentials]", "wrong or missing credentials: "
	for text, c := range map[string]struct {
		auth Auth
		want string
	}{
		"you sent pa55word":           {Auth{Password: "pa55word"}, hidden},
		"you sent idtoken":            {Auth{IdentityToken: "idtoken"}, hidden},
		"you sent regtoken":           {Auth{RegistryToken: "regtoken"}, hidden},
		"you sent YTpi":               {Auth{Auth: "YTpi"}, hidden},
		"someone is unknown":          {Auth{Username: "someone", Password: "pa55word"}, "someone is unknown"},
		"aaa":                         {Auth{Password: "a"}, "aaa"},
		denied + "no":                 {Auth{Password: "wrong"}, denied + "no"},
		denied + "not wrong":          {Auth{Password: "wrong"}, denied + hidden},
		"registry is unavailable: no": {Auth{Password: "registry"}, "registry is unavailable: no"},
	} {
		if got := Scrub(text, &c.auth); got != c.want {
			t.Errorf("Scrub(%q) = %q, want %q", text, got, c.want)
		}
	}
}

// TestAfterMirrors: the kind of an error does not depend on the text about mirrors.
func TestAfterMirrors(t *testing.T) {
	failed := []string{"mirror.test/x: StatusCode: 404, gone"}
	for name, c := range map[string]struct{ cause, want error }{
		"unknown":    {errors.New("odd"), errdefs.ErrUnknown},
		"classified": {docker.ErrTooManyRequests, ErrRegistryUnavailable},
		"with kind":  {errdefs.ErrPermissionDenied, errdefs.ErrPermissionDenied},
	} {
		err := NewPullError("h.test/x", nil, AfterMirrors(c.cause, failed))
		if !errors.Is(err, c.want) || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), failed[0]) {
			t.Errorf("%s: %v, want the kind %v and the mirror's error", name, err, c.want)
		}
		if err := AfterMirrors(c.cause, nil); !errors.Is(err, c.cause) || err.Error() != c.cause.Error() {
			t.Errorf("%s: %v without mirrors, want it as it is", name, err)
		}
	}
}

func TestRegistryHost(t *testing.T) {
	for in, want := range map[string]string{
		"quay.io": "quay.io", "https://quay.io/v2/": "quay.io", "H.test:5000": "h.test:5000",
		"http://h.test:5000":          "h.test:5000",
		"https://index.docker.io/v1/": "docker.io", "registry-1.docker.io": "docker.io", "docker.io": "docker.io",
		"http://%": "",
	} {
		if got := registryHost(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := DefaultConfig()
	good.Validate(func(key string, err error) { t.Errorf("Validate of the defaults: %s: %v", key, err) })
	for name, spoil := range map[string]func(*Config){
		"registries_conf":       func(c *Config) { c.RegistriesConf = "x" },
		"policy":                func(c *Config) { c.Policy = "x" },
		"auth_file":             func(c *Config) { c.AuthFile = "x" },
		"preload_dir":           func(c *Config) { c.PreloadDir = "x" },
		"pull_progress_timeout": func(c *Config) { c.PullProgressTimeout = -1 },
		"pull_grace":            func(c *Config) { c.PullGrace = -1 },
		"pull_min_rate":         func(c *Config) { c.PullMinRate = -1 },
		"max_image_bytes":       func(c *Config) { c.MaxImageBytes = 0 },
		"max_writable_bytes":    func(c *Config) { c.MaxWritableBytes = 10 },
		"pull_memory":           func(c *Config) { c.PullMemory = minPullMemory - 1 },
		"variant_annotations":   func(c *Config) { c.VariantAnnotations = []string{"ok", ""} },
		"pinned_images":         func(c *Config) { c.Pinned = []string{"ok", "**"} },
	} {
		c := good
		spoil(&c)
		var wrong []string
		c.Validate(func(key string, err error) { wrong = append(wrong, key+": "+err.Error()) })
		if len(wrong) != 1 || !strings.Contains(wrong[0], name) {
			t.Errorf("Validate reports %q, want one problem about %s", wrong, name)
		}
	}
}
