package image_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
)

// TestPullStoresAsLoad: layers that are pulled side by side are stored as containers/image stores them when an archive
// is loaded: ids, digests, sizes and owners in their records; modes, owners, times, kinds and targets of their files;
// the directory itself, of which the tar has an entry or not.
func TestPullStoresAsLoad(t *testing.T) {
	t.Parallel()
	at := time.Unix(1.2e9, 0)
	img := imageOf(t, func(c *v1.ConfigFile) { c.Architecture = "amd64" },
		headersLayer(t,
			&tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: at},
			&tar.Header{Name: "etc/tool", Typeflag: tar.TypeReg, Mode: 0o4755, Uid: 1000, Gid: 1001, Size: 70000, ModTime: at},
			&tar.Header{Name: "etc/same", Typeflag: tar.TypeLink, Linkname: "etc/tool"},
			&tar.Header{Name: "etc/pipe", Typeflag: tar.TypeFifo, Mode: 0o600, ModTime: at}),
		headersLayer(t,
			&tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o2750, Uid: 5, Gid: 6, ModTime: at},
			&tar.Header{Name: "etc/link", Typeflag: tar.TypeSymlink, Linkname: "../../x", Uid: 7}),
		headersLayer(t, // no entry of the directory: it is as that of the layer below
			&tar.Header{Name: "etc/.wh.tool", Typeflag: tar.TypeReg, ModTime: at},
			&tar.Header{Name: "new/.wh..wh..opq", Typeflag: tar.TypeReg, ModTime: at},
			&tar.Header{Name: "new/file", Typeflag: tar.TypeReg, Mode: 0o640, Size: 3, ModTime: at}),
	)
	reg := newRegistry(t)
	reg.push(t, "app:v1", img)
	pulled, loaded := config(t, reg.host), config(t)
	s := open(t, pulled)
	pull(t, s, reg.host+"/app:v1")
	archive := filepath.Join(t.TempDir(), "docker.tar")
	writeDockerArchive(t, archive, map[string]v1.Image{"registry.test/app:v1": img})
	if _, err := open(t, loaded).LoadFile(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	if got, want := storedLayers(t, pulled), storedLayers(t, loaded); got != want {
		t.Errorf("layers of the pull:\n%s\nwant those of the load:\n%s", got, want)
	}
	problems, err := s.Verify(t.Context(), false)
	if err != nil || len(problems) > 0 {
		t.Errorf("Verify() = %v, %v, want no corrupt layer", problems, err)
	}
}

// TestLayersAreUnpackedSideBySide: a layer is unpacked while the layer below it is still being received.
func TestLayersAreUnpackedSideBySide(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := craft(t, nil, tree{"below": "x"}, tree{"above": "y"})
	reg.push(t, "app:v1", img)
	cfg := config(t, reg.host)
	var unpacked atomic.Bool
	reg.setGuard(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0)) {
			return false
		}
		for range 3000 {
			found, _ := filepath.Glob(filepath.Join(cfg.Root, "tmp/pull-*/layer-1/files/above"))
			if len(found) > 0 {
				unpacked.Store(true)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	})
	pull(t, open(t, cfg), reg.host+"/app:v1")
	if !unpacked.Load() {
		t.Error("the upper layer was not unpacked before the lower one was received")
	}
}

// TestOtherBlobOfSameTar: a blob with the right tar, but another digest than the manifest's, is refused: storage would
// record the manifest's.
func TestOtherBlobOfSameTar(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	raw := lowestBlob(t, img)
	const gzipTime = 4 // the offset of the header's modification time
	raw[gzipTime] ^= 1
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		other := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0))
		if other {
			_, _ = w.Write(raw)
		}
		return other
	})
	cfg := config(t, reg.host)
	s := open(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if want := "does not have the digest " + layerDigest(t, img, 0); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
	checkNothingPulled(t, s, cfg)
}

// TestTruncatedLayer: a blob with its digest whose tar is not complete is a broken image. The registry is not
// unavailable, which the kubelet would take for a reason to try again.
func TestTruncatedLayer(t *testing.T) {
	t.Parallel()
	var whole bytes.Buffer
	w := tar.NewWriter(&whole)
	if err := w.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Size: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	whole.Write(make([]byte, 1000))
	reg := newRegistry(t)
	cut := static.NewLayer(whole.Bytes(), types.DockerUncompressedLayer)
	reg.push(t, "app:v1", appendLayer(t, craft(t, nil), cut))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if err == nil || !strings.Contains(err.Error(), "unexpected EOF") || errdefs.IsUnavailable(err) {
		t.Errorf("error %v, want an unexpected EOF, but not that of the registry", err)
	}
	checkNothingPulled(t, s, cfg)
}

// TestRejectedImageIsNotFetched: no layer is requested of an image that the signature policy rejects.
func TestRejectedImageIsNotFetched(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	cfg := config(t, reg.host)
	writeFile(t, cfg.Policy, rejectAll)
	s := open(t, cfg)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); !isSignature(err) {
		t.Errorf("error %v, want one of the signature policy", err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		blob, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if n := reg.count("GET /v2/app/blobs/" + blob.String()); n != 0 {
			t.Errorf("%d requests for layer %s, want none", n, blob)
		}
	}
	checkNothingPulled(t, s, cfg)
}

// headersLayer returns a layer with these entries; files have zeros.
func headersLayer(t testing.TB, headers ...*tar.Header) v1.Layer {
	t.Helper()
	var raw bytes.Buffer
	w := tar.NewWriter(&raw)
	for _, h := range headers {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// storedLayers describes the records and files of all layers. What a docker archive does not have is left out: the
// compressed layer.
func storedLayers(t testing.TB, cfg setup) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(cfg.Root, "overlay-layers/layers.json"))
	if err != nil {
		t.Fatal(err)
	}
	var records []struct {
		ID, Parent string
		Digest     string   `json:"diff-digest"`
		Size       int64    `json:"diff-size"`
		UIDs       []uint32 `json:"uidset"`
		GIDs       []uint32 `json:"gidset"`
	}
	if err := json.Unmarshal(raw, &records); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, record := range records {
		fmt.Fprintf(&out, "%+v\n", record)
		describeTree(t, &out, filepath.Join(cfg.Root, "overlay", record.ID, "diff"))
	}
	return out.String()
}

func describeTree(t testing.TB, out io.Writer, dir string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s has no owner", path)
		}
		times := info.ModTime().String()
		if time.Since(info.ModTime()) < time.Hour {
			times = "" // the tar does not have it
		}
		target, _ := os.Readlink(path) // fails for others than links
		opaque := make([]byte, 8)
		n, _ := syscall.Getxattr(path, "trusted.overlay.opaque", opaque) // fails where there is none
		fmt.Fprintf(out, "  %s %v %d:%d %d links %q %s opaque %q\n", strings.TrimPrefix(path, dir), info.Mode(), st.Uid,
			st.Gid, st.Nlink, target, times, opaque[:max(n, 0)])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
