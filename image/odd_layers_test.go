package image_test

import (
	"archive/tar"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/podd-project/podd/image"
)

// oddLayer has a file twice, and whiteouts before and after entries of the same name. The contents are zero bytes.
func oddLayer(t testing.TB) v1.Layer {
	t.Helper()
	return headersLayer(t,
		&tar.Header{Name: "twice", Typeflag: tar.TypeReg, Mode: 0o644, Size: 3},
		&tar.Header{Name: "twice", Typeflag: tar.TypeReg, Mode: 0o600, Size: 7},
		&tar.Header{Name: ".wh.before", Typeflag: tar.TypeReg},
		&tar.Header{Name: "before/", Typeflag: tar.TypeDir, Mode: 0o755},
		&tar.Header{Name: "before/new", Typeflag: tar.TypeReg, Size: 1},
		&tar.Header{Name: "after/", Typeflag: tar.TypeDir, Mode: 0o755},
		&tar.Header{Name: "after/new", Typeflag: tar.TypeReg, Size: 1},
		&tar.Header{Name: ".wh.after", Typeflag: tar.TypeReg},
		&tar.Header{Name: "seen/", Typeflag: tar.TypeDir, Mode: 0o755,
			PAXRecords: map[string]string{"SCHILY.xattr.trusted.overlay.opaque": "y"}},
	)
}

// TestOddLayers: an image whose tar has paths twice and whiteouts of paths that it has too (OCI image specification,
// layer.md: whiteouts apply to lower layers only). Deleted files of the layer below stay deleted, an image cannot speak
// the language of overlayfs, its layers verify, it is the same after export and load, and its content is taken from the
// store for an image that has it on another layer.
func TestOddLayers(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	old := tree{"before/": "", "before/secret": "x", "after/": "", "after/secret": "x", "seen/": "", "seen/file": "x"}
	img := imageOf(t, nil, layer(t, old), oddLayer(t))
	reg.push(t, "odd:v1", img)
	old["other"] = "y"
	reg.push(t, "odd:v2", imageOf(t, nil, layer(t, old), oddLayer(t)))
	s := open(t, config(t, reg.host))
	pull(t, s, reg.host+"/odd:v1")
	checkOdd(t, rootfs(t, s, "c1", imageID(t, img)))

	reg.forget()
	other := pull(t, s, reg.host+"/odd:v2")
	if n := reg.count("GET /v2/odd/blobs/" + layerDigest(t, img, 1)); n != 0 {
		t.Errorf("%d requests for a layer whose content is in the store, want 0", n)
	}
	checkOdd(t, rootfs(t, s, "c2", other.ID))
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("Verify = %+v, %v, want no corrupt layer", found, err)
	}

	archive := filepath.Join(t.TempDir(), "odd.tar")
	if err := s.Export(t.Context(), reg.host+"/odd:v1", archive); err != nil {
		t.Fatal(err)
	}
	loaded := open(t, config(t))
	images, err := loaded.LoadFile(t.Context(), archive)
	if err != nil || len(images) != 1 || images[0].ID != imageID(t, img) {
		t.Fatalf("load of the export = %v, %v, want image %s", images, err, imageID(t, img))
	}
	checkOdd(t, rootfs(t, loaded, "c3", images[0].ID))
}

// checkOdd compares a root filesystem with that of TestOddLayers.
func checkOdd(t *testing.T, root string) {
	t.Helper()
	var got []string
	for _, pattern := range []string{"twice", "before/*", "after/*", "seen/*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, path := range found {
			name, _ := filepath.Rel(root, path)
			got = append(got, name)
		}
	}
	if want := []string{"twice", "before/new", "after/new", "seen/file"}; !slices.Equal(got, want) {
		t.Errorf("files = %q, want %q", got, want)
	}
	if info, err := os.Stat(filepath.Join(root, "twice")); err != nil || info.Size() != 7 || info.Mode().Perm() != 0o600 {
		t.Errorf("the file that is there twice: %v, %v, want the second", info, err)
	}
}

// TestCutDownload: a download that is cut off is completed, whatever the registry says to a request for the rest.
func TestCutDownload(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]int{
		"ranges are ignored": http.StatusOK, "bad request": http.StatusBadRequest,
		"not satisfiable": http.StatusRequestedRangeNotSatisfiable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			img, blob := largeImage(t)
			reg.push(t, "app:v1", img)
			var requests atomic.Int64
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0)) {
					return false
				}
				switch n := requests.Add(1); {
				case n == 1:
					w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
					_, _ = w.Write(blob[:len(blob)/2])
					panic(http.ErrAbortHandler)
				case r.Header.Get("Range") != "" && rest != http.StatusOK:
					w.WriteHeader(rest)
				default:
					_, _ = w.Write(blob)
				}
				return true
			})
			s := open(t, config(t, reg.host))
			if got := pull(t, s, reg.host+"/app:v1"); got.ID != imageID(t, img) {
				t.Errorf("image %s, want %s", got.ID, imageID(t, img))
			}
		})
	}
}

// TestDownloadIsCutOften: a registry that cuts off every download gets a few requests only.
func TestDownloadIsCutOften(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img, blob := largeImage(t)
	reg.push(t, "app:v1", img)
	var requests atomic.Int64
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0)) {
			return false
		}
		requests.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(len(blob)))
		_, _ = w.Write(blob[:len(blob)/2])
		panic(http.ErrAbortHandler)
	})
	s := open(t, config(t, reg.host))
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if err == nil || requests.Load() > 10 {
		t.Errorf("Pull = %v after %d requests, want an error after a few", err, requests.Load())
	}
}

// largeImage returns an image with a layer of 6 MiB that cannot be compressed, and the layer's blob.
func largeImage(t testing.TB) (v1.Image, []byte) {
	t.Helper()
	content := make([]byte, 6<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // never fails
	img := craft(t, nil, tree{"a": string(content)})
	return img, lowestBlob(t, img)
}

// lowestBlob returns the blob of an image's lowest layer.
func lowestBlob(t testing.TB, img v1.Image) []byte {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	body, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	blob, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return blob
}
