package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Credentials: the registry at AuthAddr requires User and Password, the one at TokenAddr requires Token as a registry
// token.
const (
	User     = "podd"
	Password = "open sesame"
	Token    = "podd-registry-token"
)

// Registry serves the test images over plain HTTP. Each image has its real name (e2e-test-images/busybox:1.29-2), and
// with one of these prefixes a fault:
//
//	slow/<name>       a layer takes about two seconds
//	stalled/<name>    a layer stops in the middle, until Release or until the client disconnects
//	trickle/<name>    a layer comes at 100 bytes per second, until Release or until the client disconnects
//	corrupt/<name>    a layer does not match its digest
//	truncated/<name>  the connection is closed in the middle of a layer
//	malformed/<name>  the manifest is not JSON
//	broken/<name>     every answer is an internal server error
//	lying/<name>      the manifest is another image's than the one requested
type Registry struct {
	// Addr is host:port of the registry without authentication; the others require credentials for the same images.
	// They are other hosts, not other repositories, because a client requests the authentication method of a host.
	Addr, AuthAddr, TokenAddr string

	servers []*http.Server
	handler http.Handler // without faults
	release chan struct{}
	once    sync.Once

	mu       sync.Mutex
	requests []string
}

// Listen serves the layout's images on addr ("127.0.0.1:0" for any port), and with authentication on two more ports of
// the same host, until Close.
func Listen(path layout.Path, addr string) (*Registry, error) {
	quiet := log.New(io.Discard, "", 0)
	r := &Registry{
		release: make(chan struct{}),
		handler: registry.New(registry.Logger(quiet), registry.WithBlobHandler(&blobs{
			dir: filepath.Join(string(path), "blobs"), pushed: registry.NewInMemoryBlobHandler(),
		})),
	}
	if err := r.load(path); err != nil {
		return nil, fmt.Errorf("fill the registry: %w", err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	another := net.JoinHostPort(host, "0")
	for _, l := range []struct {
		addr  string
		serve http.HandlerFunc
		at    *string
	}{{addr, r.serve, &r.Addr}, {another, r.basic, &r.AuthAddr}, {another, r.bearer, &r.TokenAddr}} {
		listener, err := net.Listen("tcp", l.addr)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		*l.at = listener.Addr().String()
		s := &http.Server{Handler: l.serve, ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
		r.servers = append(r.servers, s)
		go func() { _ = s.Serve(listener) }() // ends with ErrServerClosed at Close
	}
	return r, nil
}

// Close stops serving and aborts requests in progress.
func (r *Registry) Close() error {
	r.Release()
	var errs []error
	for _, s := range r.servers {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Release ends the faults stalled/ and trickle/, for present and later requests.
func (r *Registry) Release() { r.once.Do(func() { close(r.release) }) }

// Requests returns all requests so far, as "GET /v2/...", oldest first.
func (r *Registry) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.requests...)
}

// load adds the manifests; blobs are served from the layout.
func (r *Registry) load(path layout.Path) error {
	list, err := descriptors(path)
	if err != nil {
		return err
	}
	for _, d := range list {
		repo, tag, ok := splitTag(d.Annotations[refName])
		if !ok {
			return fmt.Errorf("image name %q has no tag", d.Annotations[refName])
		}
		if err := r.loadOne(path, d, repo, tag); err != nil {
			return fmt.Errorf("%s:%s: %w", repo, tag, err)
		}
	}
	return nil
}

func (r *Registry) loadOne(path layout.Path, d v1.Descriptor, repo, tag string) error {
	raw, err := path.Bytes(d.Digest)
	if err != nil {
		return err
	}
	if d.MediaType.IsIndex() {
		m, err := v1.ParseIndexManifest(bytes.NewReader(raw))
		if err != nil {
			return err
		}
		for _, child := range m.Manifests {
			if err := r.loadOne(path, child, repo, child.Digest.String()); err != nil {
				return err
			}
		}
	}
	return r.put(repo, tag, d.MediaType, raw)
}

// put adds one manifest with the handler's own PUT, without the network.
func (r *Registry) put(repo, tag string, media types.MediaType, raw []byte) error {
	req, err := http.NewRequest(http.MethodPut, "/v2/"+repo+"/manifests/"+tag, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", string(media))
	rec := &recorder{header: http.Header{}, code: http.StatusOK}
	r.handler.ServeHTTP(rec, req)
	if rec.code != http.StatusCreated {
		return fmt.Errorf("registry answered %d: %s", rec.code, rec.body.String())
	}
	return nil
}

// blobs serves the layout's blobs read-only, and keeps pushed blobs in memory.
type blobs struct {
	dir    string
	pushed registry.BlobHandler
}

func (b *blobs) file(h v1.Hash) string { return filepath.Join(b.dir, h.Algorithm, h.Hex) }

func (b *blobs) Get(ctx context.Context, repo string, h v1.Hash) (io.ReadCloser, error) {
	f, err := os.Open(b.file(h))
	if errors.Is(err, os.ErrNotExist) {
		return b.pushed.Get(ctx, repo, h)
	}
	return f, err
}

func (b *blobs) Stat(ctx context.Context, repo string, h v1.Hash) (int64, error) {
	info, err := os.Stat(b.file(h))
	if errors.Is(err, os.ErrNotExist) {
		return b.pushed.(registry.BlobStatHandler).Stat(ctx, repo, h)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (b *blobs) Put(ctx context.Context, repo string, h v1.Hash, rc io.ReadCloser) error {
	return b.pushed.(registry.BlobPutHandler).Put(ctx, repo, h, rc)
}

// recorder is an http.ResponseWriter that stores the response.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
