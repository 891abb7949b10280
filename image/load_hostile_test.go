package image_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// pipedLayout makes a layout in dir whose layer is a named pipe, and returns the pipe's path and the layer.
func pipedLayout(t *testing.T, dir, ref string) (path, content string) {
	t.Helper()
	img := simple(t, "x")
	writeLayout(t, dir, annotated{img: img, annotations: map[string]string{ociName: ref}})
	path = filepath.Join(dir, "blobs", strings.ReplaceAll(layerDigest(t, img, 0), ":", "/"))
	content = readFile(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, content
}

// loadPiped loads a layout of pipedLayout. It returns the pipe once the process reads it, and what gets the result.
func loadPiped(t *testing.T, s *image.Store, dir, pipe string) (*os.File, <-chan error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.LoadFile(t.Context(), dir)
		done <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the process
	if err != nil {
		t.Fatal(err)
	}
	return w, done
}

// TestLoadIsConfined looks at the process that reads an archive, while it waits for a layer: it is restricted as that
// of a pull, podd itself has no file of the archive open, and the image is listed.
func TestLoadIsConfined(t *testing.T) {
	s := open(t, config(t))
	dir := t.TempDir()
	pipe, content := pipedLayout(t, dir, "registry.test/slow:v1")
	w, done := loadPiped(t, s, dir, pipe)
	pids := pullProcesses(t, os.Getpid())
	if len(pids) != 1 {
		t.Fatalf("%d processes load, want 1", len(pids))
	}
	status := readFile(t, fmt.Sprintf("/proc/%d/status", pids[0]))
	for _, want := range []string{"CapBnd:\t000000008824001b", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("status of the process lacks %q: %s", want, status)
		}
	}
	own, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range own {
		if target, _ := os.Readlink(fd); strings.HasPrefix(target, dir) && target != pipe {
			t.Errorf("podd has %s open, want only the process to read it", target)
		}
	}
	eventually(t, "Pulls has the image that is loaded", func() bool {
		list := pullsOf(s)
		return len(list) == 1 && list[0].Ref == "registry.test/slow:v1" && list[0].Stage == image.StageDownloading
	})
	if _, err := io.WriteString(w, content); err != nil {
		t.Error(err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Errorf("LoadFile() = %v, want the image with what came through the pipe", err)
	}
	if list := pullsOf(s); len(list) > 0 {
		t.Errorf("Pulls() = %+v afterwards, want none", list)
	}
}

// TestLoadKilled: a load whose process dies fails and leaves nothing; the images that it has copied before stay.
func TestLoadKilled(t *testing.T) {
	cfg := config(t)
	s := open(t, cfg)
	dir := t.TempDir()
	first := simple(t, "first")
	writeLayout(t, dir, annotated{img: first, annotations: map[string]string{ociName: "registry.test/first:v1"}})
	pipe, content := pipedLayout(t, filepath.Join(dir, "second"), "registry.test/second:v1")
	mergeLayout(t, filepath.Join(dir, "second"), dir)
	pipe = strings.Replace(pipe, "/second/", "/", 1)
	w, done := loadPiped(t, s, dir, pipe)
	for _, pid := range pullProcesses(t, os.Getpid()) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err == nil || !strings.Contains(err.Error(), "was killed (signal: killed)") {
		t.Errorf("LoadFile() = %v, want an error that names the signal", err)
	}
	w.Close()
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != imageID(t, first) {
		t.Errorf("List() = %+v, %v, want the first image", list, err)
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	if err := os.Remove(pipe); err != nil {
		t.Fatal(err)
	}
	writeFile(t, pipe, content)
	if loaded, err := s.LoadFile(t.Context(), dir); err != nil || len(loaded) != 2 {
		t.Errorf("LoadFile() again = %+v, %v, want both images", loaded, err)
	}
}

// mergeLayout moves the images of a layout to the end of another one.
func mergeLayout(t *testing.T, from, to string) {
	t.Helper()
	blobs, err := filepath.Glob(filepath.Join(from, "blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, blob := range blobs {
		if err := os.Rename(blob, filepath.Join(to, "blobs/sha256", filepath.Base(blob))); err != nil {
			t.Fatal(err)
		}
	}
	var both, more v1.IndexManifest
	for path, index := range map[string]*v1.IndexManifest{to: &both, from: &more} {
		if err := json.Unmarshal([]byte(readFile(t, filepath.Join(path, "index.json"))), index); err != nil {
			t.Fatal(err)
		}
	}
	both.Manifests = append(both.Manifests, more.Manifests...)
	writeJSON(t, filepath.Join(to, "index.json"), both)
}

func writeJSON(t *testing.T, path string, value any) {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(raw))
}

// writeTar writes a tar with gzip. Files of "" are links to /etc/passwd.
func writeTar(t *testing.T, path string, files tree) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	defer z.Close()
	w := tar.NewWriter(z)
	defer w.Close()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(files[name])), Typeflag: tar.TypeReg}
		if files[name] == "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, "/etc/passwd"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoadHostile: archives that cost too much, or name what is not theirs, are refused. Nothing of them stays, and the
// store keeps working.
func TestLoadHostile(t *testing.T) {
	t.Parallel()
	const layoutFile = `{"imageLayoutVersion":"1.0.0"}`
	imageOf := func(img v1.Image) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			layout := path + ".layout"
			writeLayout(t, layout, annotated{img: img, annotations: map[string]string{ociName: "registry.test/bad:v1"}})
			tarDir(t, layout, path)
		}
	}
	tarOf := func(files tree) func(*testing.T, string) {
		return func(t *testing.T, path string) { writeTar(t, path, files) }
	}
	long := tree{} // names in headers
	for i := range 20 {
		long[fmt.Sprintf("%0100000d", i)] = "x"
	}
	zstd := static.NewLayer(bomb(t, 600<<20), types.OCILayerZStd)
	base := mutate.ConfigMediaType(mutate.MediaType(craft(t, nil), types.OCIManifestSchema1), types.OCIConfigJSON)
	descriptor := `{"mediaType":"application/vnd.oci.image.manifest.v1+json","size":7,"digest":"sha256:` +
		strings.Repeat("0", 64) + `"}`
	names := `"a.test/b:1"` + strings.Repeat(`,"a.test/b:1"`, 100)
	for name, c := range map[string]struct {
		write func(*testing.T, string)
		want  string
		full  bool // refused for what it costs, else as malformed
	}{
		"layer takes memory": {imageOf(appendLayer(t, base, zstd)), "pull_memory", true},
		"layer is large":     {imageOf(craft(t, nil, tree{"a": strings.Repeat("x", 2<<20)})), "max_image_bytes", true},
		"second layer is large": {
			imageOf(craft(t, nil, tree{"a": "x"}, tree{"b": strings.Repeat("x", 2<<20)})), "max_image_bytes", true,
		},
		"zeros": {tarOf(tree{"zeros": strings.Repeat("\x00", 2<<20)}), "max_image_bytes", true},
		"sparse file": {func(t *testing.T, path string) {
			writeFile(t, path, string(sparseTar(t)))
		}, "max_image_bytes", true},
		"headers": {tarOf(long), "max_image_bytes", true},
		"large blob": {tarOf(tree{"oci-layout": layoutFile, "index.json": "{}",
			"later/blobs": strings.Repeat("\x00", 2<<20)}), "max_image_bytes", true},
		"names that lead out": {tarOf(tree{"oci-layout": layoutFile, "index.json": `{"manifests":[` + descriptor + `]}`,
			"blobs/../../escaped": "x", "../escaped": "x", "/tmp/escaped": "x"}), "no such file", false},
		"links": {tarOf(tree{"oci-layout": layoutFile, "index.json": `{"manifests":[` + descriptor + `]}`,
			"blobs/sha256/" + strings.Repeat("0", 64): ""}), "path escapes", false},
		"index is a link": {tarOf(tree{"oci-layout": layoutFile, "index.json": ""}), "path escapes", false},
		"large index": {tarOf(tree{"oci-layout": layoutFile, "index.json": strings.Repeat(" ", 5<<20)}),
			"more than", true},
		"many images": {tarOf(tree{"oci-layout": layoutFile, "index.json": `{"manifests":[` + descriptor +
			strings.Repeat(","+descriptor, 1000) + `]}`}), "more than 1000 images", false},
		"many names": {tarOf(tree{"manifest.json": `[{"Config":"c","RepoTags":[` + names + `],"Layers":[]}]`}),
			"more than 100 names", false},
		"files of the node": {tarOf(tree{"manifest.json": `[{"Config":"/etc/passwd","Layers":["../../etc/shadow"]}]`}),
			"", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := config(t)
			cfg.MaxImageBytes, cfg.PullMemory = 1<<20, 256<<20
			if name == "layer takes memory" {
				cfg.MaxImageBytes = 1 << 30
			}
			s := open(t, cfg)
			path := filepath.Join(dir, "bad.tar")
			c.write(t, path)
			images, err := s.LoadFile(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), c.want) || images != nil ||
				errdefs.IsResourceExhausted(err) != c.full || errdefs.IsInvalidArgument(err) == c.full {
				t.Errorf("LoadFile() = %v, %v, want an error with %q", images, err, c.want)
			}
			checkNothingPulled(t, s, cfg)
			for _, escaped := range []string{"/tmp/escaped", filepath.Join(cfg.Root, "escaped"), dir + "/escaped"} {
				if fileExists(escaped) {
					t.Errorf("the archive has written %s", escaped)
				}
			}
			good := filepath.Join(dir, "good.tar")
			writeDockerArchive(t, good, map[string]v1.Image{"registry.test/good:v1": simple(t, "good")})
			if _, err := s.LoadFile(t.Context(), good); err != nil {
				t.Errorf("LoadFile() of a good archive = %v", err)
			}
		})
	}
}
