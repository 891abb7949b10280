package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// testRegistry is a registry on the loopback device. guard, if set, gets each request first and returns true if it has
// answered.
type testRegistry struct {
	host   string
	server *httptest.Server
	// inner answers without guard.
	inner http.Handler

	mu    sync.Mutex
	guard func(http.ResponseWriter, *http.Request) bool
	seen  []string // "GET /v2/..."
}

func newRegistry(t testing.TB) *testRegistry {
	r := &testRegistry{inner: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.seen = append(r.seen, req.Method+" "+req.URL.Path)
		guard := r.guard
		r.mu.Unlock()
		if guard != nil && guard(w, req) {
			return
		}
		r.inner.ServeHTTP(w, req)
	}))
	r.host = strings.TrimPrefix(r.server.URL, "http://")
	t.Cleanup(func() {
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

func (r *testRegistry) setGuard(guard func(http.ResponseWriter, *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guard = guard
}

// count returns the number of requests with a prefix, e.g. "GET /v2/x/blobs/".
func (r *testRegistry) count(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.seen {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (r *testRegistry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
}

// push stores an image or index as repo:tag and returns its digest.
func (r *testRegistry) push(t testing.TB, ref string, what remote.Taggable) string {
	t.Helper()
	parsed, err := name.ParseReference(r.host+"/"+ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	switch w := what.(type) {
	case v1.Image:
		err = remote.Write(parsed, w)
	case v1.ImageIndex:
		err = remote.WriteIndex(parsed, w)
	default:
		err = remote.Put(parsed, w)
	}
	if err != nil {
		t.Fatal(err)
	}
	d, err := what.(interface{ Digest() (v1.Hash, error) }).Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// tree is a layer's content: a path that ends in / is a directory, one with -> a symlink.
type tree map[string]string

func layer(t testing.TB, files tree) v1.Layer {
	t.Helper()
	return layerOf(t, files, compression.GZip)
}

// layerOf returns a layer of these files, compressed in some way.
func layerOf(t testing.TB, files tree, how compression.Compression) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	var paths []string
	for path := range files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		h := &tar.Header{Name: path, Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(files[path])),
			ModTime: time.Unix(1e9, 0)}
		if strings.HasSuffix(path, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		} else if target, ok := strings.CutPrefix(files[path], "-> "); ok {
			h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, target
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, files[path]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	}, tarball.WithCompression(how), tarball.WithMediaType(mediaType(how)), tarball.WithCompressedCaching)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mediaType returns the type of a layer that is compressed in some way.
func mediaType(how compression.Compression) types.MediaType {
	if how == compression.ZStd {
		return types.OCILayerZStd
	}
	return types.DockerLayer
}

// craft makes an image for linux/amd64 with the given layers; change, if set, edits its config.
func craft(t testing.TB, change func(*v1.ConfigFile), layers ...tree) v1.Image {
	t.Helper()
	var all []v1.Layer
	for _, files := range layers {
		all = append(all, layer(t, files))
	}
	return imageOf(t, change, all...)
}

// imageOf is craft for layers that exist. With one that Docker's manifests cannot have it gets a manifest of OCI.
func imageOf(t testing.TB, change func(*v1.ConfigFile), layers ...v1.Layer) v1.Image {
	t.Helper()
	img := empty.Image
	for _, l := range layers {
		if kind, err := l.MediaType(); err == nil && kind == types.OCILayerZStd {
			img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
		}
	}
	img, err := mutate.AppendLayers(img, layers...)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Created = v1.Time{Time: time.Unix(1.5e9, 0)}
	if change != nil {
		change(config)
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// simple returns an image with one file, different for each content.
func simple(t testing.TB, content string) v1.Image {
	return craft(t, nil, tree{"bin/": "", "bin/app": content})
}

// arch returns an edit of a config for another CPU.
func arch(name string) func(*v1.ConfigFile) {
	return func(c *v1.ConfigFile) { c.Architecture = name }
}

// imageID returns the id that podd gives to an image.
func imageID(t testing.TB, img v1.Image) string {
	t.Helper()
	h, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	return h.Hex
}

func digestOf(t testing.TB, img interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	h, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// setup is the configuration of a store and its directories.
type setup struct {
	image.Config
	image.Node
}

// config returns a store's configuration below a fresh directory, with the hosts as insecure registries.
func config(t testing.TB, hosts ...string) setup {
	t.Helper()
	return configIn(t, t.TempDir(), hosts...)
}

// diskConfig is config on a disk instead of a tmpfs, for tests of user namespaces.
func diskConfig(t testing.TB, hosts ...string) setup {
	t.Helper()
	dir, err := os.MkdirTemp(diskDir, tempPrefix())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // user namespaces need a way in
		t.Fatal(err)
	}
	return configIn(t, dir, hosts...)
}

func configIn(t testing.TB, dir string, hosts ...string) setup {
	t.Helper()
	cfg := setup{image.DefaultConfig(), image.Node{Root: filepath.Join(dir, "s"), RunRoot: filepath.Join(dir, "run")}}
	cfg.RegistriesConf = filepath.Join(dir, "registries.conf")
	cfg.Policy, cfg.AuthFile = filepath.Join(dir, "policy.json"), filepath.Join(dir, "auth.json")
	cfg.PreloadDir = filepath.Join(dir, "preload")
	cfg.PullGrace = 10 * time.Second
	var conf strings.Builder
	for _, host := range hosts {
		fmt.Fprintf(&conf, "[[registry]]\nlocation = %q\ninsecure = true\n", host)
	}
	writeFile(t, cfg.RegistriesConf, conf.String())
	return cfg
}

func open(t testing.TB, cfg setup) *image.Store {
	t.Helper()
	s, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// closeStore releases the containers that a test left and closes the store: TestMain checks for leaks of the store
// itself.
func closeStore(t testing.TB, s *image.Store) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	held, err := s.ContainersWithMounts(ctx)
	if err != nil {
		t.Error(err)
	}
	for _, id := range held {
		if err := s.Release(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func pull(t testing.TB, s *image.Store, ref string) *image.Image {
	t.Helper()
	img, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func isUnavailable(err error) bool { return errors.Is(err, image.ErrRegistryUnavailable) }

func isSignature(err error) bool { return errors.Is(err, image.ErrSignatureInvalid) }

func isFull(err error) bool { return errdefs.IsResourceExhausted(err) }

// mountTmpfs creates dir and mounts a new tmpfs on it until the end of the test.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}
