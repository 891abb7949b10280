package image_test

import (
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
)

const (
	emptyJSON = "application/vnd.oci.empty.v1+json"
	title     = "org.opencontainers.image.title"
)

// blob is one of an artifact, with a media type and an annotation.
type blob struct{ kind, content, key, value string }

// artifactOf returns an artifact with a type of config.
func artifactOf(t *testing.T, config types.MediaType, blobs ...blob) v1.Image {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), config)
	var adds []mutate.Addendum
	for _, b := range blobs {
		adds = append(adds, mutate.Addendum{
			Layer: static.NewLayer([]byte(b.content), types.MediaType(b.kind)), Annotations: map[string]string{b.key: b.value},
		})
	}
	img, err := mutate.Append(img, adds...)
	if err != nil {
		t.Fatal(err)
	}
	annotated, ok := mutate.Annotations(img, map[string]string{"made.by": "test"}).(v1.Image)
	if !ok {
		t.Fatal("not an image")
	}
	return annotated
}

// readAll returns what a layer's Compressed or Uncompressed has.
func readAll(t *testing.T) func(io.ReadCloser, error) string {
	return func(r io.ReadCloser, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
}

// filesIn returns the files below a directory, with their content.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir+"/")] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestArtifactVolumes: artifacts as ORAS, Helm and ModelPack push them are volumes with their files (KEP-4639), whether
// they are pulled or loaded.
func TestArtifactVolumes(t *testing.T) {
	t.Parallel()
	packed := layer(t, tree{"chart/": "", "chart/values.yaml": "a: 1"})
	gzip, plain := readAll(t)(packed.Compressed()), readAll(t)(packed.Uncompressed())
	elsewhere := newRegistry(t)
	elsewhere.setGuard(func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("another host was asked for %s", r.URL)
		return false
	})
	const layerGzip, text = "application/vnd.oci.image.layer.v1.tar+gzip", "text/plain"
	sum := func(content string) string {
		h, _, err := v1.SHA256(strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return h.Hex
	}
	chart := map[string]string{"chart/values.yaml": "a: 1"}
	for name, c := range map[string]struct {
		what v1.Image
		want map[string]string
	}{
		"files": {artifactOf(t, emptyJSON, blob{text, "1", title, "a.txt"}, blob{text, "2", title, "dir/./b.txt"},
			blob{text, "", title, "empty"}), map[string]string{"a.txt": "1", "dir/b.txt": "2", "empty": ""}},
		"one blob twice": {artifactOf(t, emptyJSON, blob{text, "1", title, "a"}, blob{text, "1", title, "b"}),
			map[string]string{"a": "1", "b": "1"}},
		"without a name": {artifactOf(t, "application/vnd.wasm.config.v0+json", blob{"application/wasm", "code", "", ""}),
			map[string]string{sum("code"): "code"}},
		"model": {artifactOf(t, "application/vnd.cncf.model.config.v1+json",
			blob{"application/vnd.cncf.model.weight.v1.raw", "weights", "org.cnai.model.filepath", "w/model.bin"},
			blob{"application/vnd.cncf.model.code.v1.tar", plain, "org.cnai.model.filepath", "chart"}),
			map[string]string{"w/model.bin": "weights", "chart/values.yaml": "a: 1"}},
		"chart": {artifactOf(t, "application/vnd.cncf.helm.config.v1+json",
			blob{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", gzip, "", ""}), chart},
		"directory": {artifactOf(t, emptyJSON, blob{layerGzip, gzip, title, "chart"}), chart},
		"one tar twice": {artifactOf(t, emptyJSON, blob{layerGzip, gzip, title, "a"},
			blob{layerGzip, gzip, title, "b"}), chart},
		"a file of a tar": {artifactOf(t, emptyJSON, blob{layerGzip, gzip, title, "chart"},
			blob{text, "new", title, "chart/values.yaml"}), map[string]string{"chart/values.yaml": "new"}},
		"other hosts": {oddImage(t, artifactOf(t, emptyJSON, blob{text, "1", title, "a"}),
			func(m *v1.Manifest, _ map[string]any) { m.Layers[0].URLs = []string{"http://" + elsewhere.host + "/x"} }),
			map[string]string{"a": "1"}},
		"docker's type": {artifactOf(t, emptyJSON, blob{"x/vnd.docker.image.rootfs.diff.tar.gzip", gzip, "", ""}), chart},
		"not a tar":     {artifactOf(t, emptyJSON, blob{layerGzip, "text", title, "a"}), map[string]string{"a": "text"}},
		"packed otherwise": {artifactOf(t, emptyJSON, blob{"x/y.tar.gz", gzip, title, "a.tgz"},
			blob{"application/gzip", gzip, title, "b.tgz"}), map[string]string{"chart/values.yaml": "a: 1", "b.tgz": gzip}},
		"and nothing": {artifactOf(t, emptyJSON, blob{emptyJSON, "{}", "", ""}, blob{text, "1", title, "a"}),
			map[string]string{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			digest := reg.push(t, "app:v1", c.what)
			ref, dir := reg.host+"/app:v1", filepath.Join(t.TempDir(), "layout")
			l, err := layout.Write(dir, empty.Index)
			if err == nil {
				err = l.AppendImage(c.what, layout.WithAnnotations(map[string]string{ociName: ref}))
			}
			if err != nil {
				t.Fatal(err)
			}
			s, other := open(t, config(t, reg.host)), open(t, config(t))
			img := pull(t, s, ref)
			loaded, err := other.LoadFile(t.Context(), dir)
			if err != nil || loaded[0].ID != img.ID {
				t.Fatalf("LoadFile = %v, %v, want %s", loaded, err, img.ID)
			}
			want := []string{reg.host + "/app@" + digest}
			if !slices.Equal(img.Digests, want) || img.Annotations["made.by"] != "test" {
				t.Errorf("digests %v, want %v; annotations %v", img.Digests, want, img.Annotations)
			}
			for _, s := range []*image.Store{s, other} {
				path, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID})
				if err != nil {
					t.Fatal(err)
				}
				if got := filesIn(t, path); !maps.Equal(got, c.want) {
					t.Errorf("files %q, want %q", got, c.want)
				}
				_, err = s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "d", ImageID: img.ID})
				if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "is an artifact") {
					t.Errorf("Rootfs = %v, want an error that says what the image is", err)
				}
			}
			reg.forget()
			if again := pull(t, s, ref); again.ID != img.ID || reg.count("/v2/app/blobs/") > 0 {
				t.Errorf("pulled again: %s with %d requests for blobs, want %s with none", again.ID,
					reg.count("/v2/app/blobs/"), img.ID)
			}
		})
	}
}

// TestHostileArtifactVolumes: no name leads out of the volume, no file is below another, and nothing is left after a
// refusal.
func TestHostileArtifactVolumes(t *testing.T) {
	t.Parallel()
	named := func(names ...string) v1.Image {
		var blobs []blob
		for _, name := range names {
			blobs = append(blobs, blob{"text/plain", "content of " + name, title, name})
		}
		return artifactOf(t, emptyJSON, blobs...)
	}
	for name, c := range map[string]struct {
		what v1.Image
		want string // of the error
	}{
		"leads up":      {named("a/../../b"), `"../b" cannot be the name of a file`},
		"absolute":      {named("/etc/passwd"), `"/etc/passwd" cannot be the name of a file`},
		"the directory": {named("./"), `"." cannot be the name of a file`},
		"a whiteout":    {named("a/.wh.b"), `"a/.wh.b" cannot be the name of a file`},
		"twice":         {named("a", "./a"), `two of its files have the name "a"`},
		"nothing":       {artifactOf(t, emptyJSON, blob{emptyJSON, "{}", "", ""}), "it has no files"},
		"no blobs":      {artifactOf(t, emptyJSON), "it has no files"},
		"encrypted":     {artifactOf(t, emptyJSON, blob{"x.tar+gzip+encrypted", "1", title, "a"}), "is encrypted"},
		"a large sum": {oddImage(t, named("a", "b"), func(m *v1.Manifest, _ map[string]any) {
			m.Layers[0].Size, m.Layers[1].Size = 2000, 2000
		}), "more than 3000 bytes (max_image_bytes)"},
		"below a file": {named("a/b", "a"), `its file "a/b" is below the file "a"`},
		"a long name":  {named(strings.Repeat("a", 256)), "cannot be the name of a file"},
		"a NUL":        {named("a\x00b"), "cannot be the name of a file"},
		"a deep path":  {named(strings.Repeat("a/", 100) + "a"), "cannot be the name of a file"},
		"without a size": {oddImage(t, named("a"), func(m *v1.Manifest, _ map[string]any) { m.Layers[0].Size = 0 }),
			"has the size 0"},
		"many blobs": {oddImage(t, named("a"), func(m *v1.Manifest, _ map[string]any) {
			for range 5000 {
				m.Layers = append(m.Layers, m.Layers[0])
			}
		}), "it has 5001 blobs, at most 5000 are allowed"},
		"large tars": {artifactOf(t, emptyJSON, blob{"x.tar", zeroTar(t), title, "a"}, blob{"x.tar", zeroTar(t), title, "b"}),
			"more than 3000 bytes, uncompressed"},
		"a wrong digest": {named("a"), "does not have the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.push(t, "app:v1", c.what)
			cfg := config(t, reg.host)
			cfg.MaxImageBytes = 3000
			if name == "a wrong digest" {
				reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
					if isBlob := strings.Contains(r.URL.Path, "/blobs/"); !isBlob {
						return false
					}
					_, _ = io.WriteString(w, "content of b")
					return true
				})
			}
			s := open(t, cfg)
			if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("Pull = %v, want an error with %q", err, c.want)
			}
			checkEmpty(t, s)
		})
	}
}

// zeroTar is a tar of zeros, compressed.
func zeroTar(t *testing.T) string {
	t.Helper()
	return readAll(t)(layer(t, tree{"zeros": strings.Repeat("\x00", 1<<20)}).Compressed())
}

// TestCorruptArtifact: a corrupt layer of an artifact is made again from its blobs.
func TestCorruptArtifact(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	d := &corrupted{T: t, reg: reg, cfg: config(t, reg.host)}
	d.cfg.BootID = "first"
	reg.push(t, "app:v1", artifactOf(t, emptyJSON, blob{"text/plain", "weights", title, "model"}))
	s := d.open()
	pull(t, s, reg.host+"/app:v1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.layerWith("model", "weights")+"/model", 0); err != nil {
		t.Fatal(err)
	}
	d.losePower("second")
	s = open(t, d.cfg)
	eventually(t, "the corruption is found", func() bool { return names(t, s) == "" })
	img := pull(t, s, reg.host+"/app:v1")
	path, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: img.ID})
	if err != nil {
		t.Fatal(err)
	}
	checkFile(t, path+"/model", "weights")
}
