package lazy

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/stargz-snapshotter/estargz"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"
)

// counted is a registry on loopback that counts the bytes of the blobs that it sends.
type counted struct {
	host string
	sent atomic.Int64
	// down makes every answer an error.
	down atomic.Bool
}

func serve(t testing.TB) *counted {
	c := &counted{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/sha256") {
			w = &countedWriter{w, &c.sent}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	c.host = strings.TrimPrefix(server.URL, "http://")
	return c
}

type countedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countedWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n.Add(int64(n))
	return n, err
}

// push stores an image as repo:tag and returns the size of its layers.
func (c *counted) push(t testing.TB, ref string, img v1.Image) (size int64) {
	t.Helper()
	parsed, err := name.ParseReference(c.host+"/"+ref, name.Insecure)
	must(t, err)
	must(t, remote.Write(parsed, img))
	layers, err := img.Layers()
	must(t, err)
	for _, l := range layers {
		n, err := l.Size()
		must(t, err)
		size += n
	}
	return size
}

// image makes an eStargz image of tars, the lowest first, that runs a command.
func image(t testing.TB, command []string, tars ...[]byte) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, raw := range tars {
		blob, err := estargz.Build(io.NewSectionReader(bytes.NewReader(raw), 0, int64(len(raw))),
			estargz.WithCompressionLevel(1))
		must(t, err)
		packed, err := io.ReadAll(blob)
		must(t, err)
		must(t, blob.Close())
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(packed)), nil
		}, tarball.WithMediaType(types.OCILayer))
		must(t, err)
		img, err = mutate.Append(img, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer,
			Annotations: map[string]string{estargz.TOCJSONDigestAnnotation: blob.TOCDigest().String()},
		})
		must(t, err)
	}
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config.Cmd = "amd64", "linux", command
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	return img
}

// busybox returns the tar of the test image of that name.
func busybox(t testing.TB, host string) []byte {
	t.Helper()
	parsed, err := name.ParseReference(host+"/e2e-test-images/busybox:1.29-2", name.Insecure)
	must(t, err)
	img, err := remote.Image(parsed)
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	plain, err := layers[0].Uncompressed()
	must(t, err)
	raw, err := io.ReadAll(plain)
	must(t, err)
	return raw
}

// ballast returns the tar of files name-0 and so on, of random bytes, which gzip does not make smaller.
func ballast(t testing.TB, name string, files, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	var seed [32]byte
	copy(seed[:], name)
	random := rand.NewChaCha8(seed)
	for i := range files {
		must(t, w.WriteHeader(&tar.Header{
			Name: fmt.Sprintf("%s-%d", name, i), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size),
		}))
		_, err := io.CopyN(w, random, int64(size))
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

// term ends a store in order.
const term = unix.SIGTERM

// layerStore is an additional layer store.
type layerStore struct {
	testing.TB
	mountpoint, root string
	cmd              *exec.Cmd
	ended            chan struct{}
	// log is what the program has written; read it only when that has ended.
	log bytes.Buffer
}

// mount starts an additional layer store until the test ends.
func mount(t testing.TB) *layerStore {
	t.Helper()
	dir := t.TempDir()
	s := &layerStore{TB: t, mountpoint: filepath.Join(dir, "store"), root: filepath.Join(dir, "root")}
	must(t, os.Mkdir(s.mountpoint, 0o700))
	s.start()
	t.Cleanup(func() {
		s.end(term)
		_ = unix.Unmount(s.mountpoint, unix.MNT_DETACH) // it has done that, unless it was killed
		if t.Failed() {
			t.Logf("what the store wrote:\n%s", s.log.String())
		}
	})
	return s
}

// start starts the store, and unmounts what a killed one has left.
func (s *layerStore) start() {
	s.Helper()
	_ = unix.Unmount(s.mountpoint, unix.MNT_DETACH) // there may be none
	s.cmd = exec.Command(filepath.Join("bin", "layer-store"), "-root", s.root, s.mountpoint)
	s.cmd.Stderr = &s.log
	must(s, s.cmd.Start())
	s.ended = make(chan struct{})
	go func() { defer close(s.ended); _ = s.cmd.Wait() }() // its end by a signal is an error
	var st unix.Statfs_t
	for range 100 {
		if err := unix.Statfs(s.mountpoint, &st); err == nil && st.Type == unix.FUSE_SUPER_MAGIC {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.Fatal("the additional layer store did not mount within 2 s")
}

// end sends a signal and waits for the end. A killed store leaves its mount, without a server.
func (s *layerStore) end(sig unix.Signal) {
	s.Helper()
	_ = s.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		s.Error("the additional layer store did not end within 10 s")
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
