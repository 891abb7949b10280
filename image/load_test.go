package image_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ggcrlayout "github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/podd-project/podd/image"
)

// TestLoadFile loads archives of each kind while the store is open. Unlike preloaded images they are not pinned.
func TestLoadFile(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	dir := t.TempDir()
	one, two, three := simple(t, "one"), simple(t, "two"), simple(t, "three")
	docker, oci := filepath.Join(dir, "docker.tar"), filepath.Join(dir, "oci.tar.gz")
	writeDockerArchive(t, docker, map[string]v1.Image{"registry.test/one:v1": one, "registry.test/two:v1": two})
	layout := filepath.Join(dir, "layout")
	writeLayout(t, layout, annotated{img: three, annotations: map[string]string{ociName: "registry.test/three:v1"}})
	tarDir(t, layout, oci)
	for path, want := range map[string][]v1.Image{docker: {one, two}, oci: {three}, layout: {three}} {
		loaded, err := s.LoadFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		var got, ids []string
		for _, i := range loaded {
			got = append(got, i.ID)
		}
		for _, i := range want {
			ids = append(ids, imageID(t, i))
		}
		slices.Sort(got)
		slices.Sort(ids)
		if !slices.Equal(got, ids) {
			t.Errorf("LoadFile(%s) = %q, want %q", path, got, ids)
		}
	}
	for ref, img := range map[string]v1.Image{
		"registry.test/one:v1": one, "registry.test/two:v1": two, "registry.test/three:v1": three,
		"registry.test/three@" + digestOf(t, three): three,
	} {
		if got, err := s.Resolve(t.Context(), ref); err != nil || got.ID != imageID(t, img) || got.Pinned {
			t.Errorf("Resolve(%s) = %+v, %v, want %s, not pinned", ref, got, err, imageID(t, img))
		}
	}
	if pulls := pullsOf(s); len(pulls) > 0 {
		t.Errorf("Pulls() = %+v after the loads, want none", pulls)
	}
}

// TestLoadAfterAFailedPull: an image that was loaded by hand is no longer one that cannot be pulled.
func TestLoadAfterAFailedPull(t *testing.T) {
	t.Parallel()
	s := open(t, config(t))
	const ref = "127.0.0.1:1/app:v1"
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); err == nil {
		t.Fatal("Pull from a closed port succeeded")
	}
	if _, failed := s.Pulls(); len(failed) != 1 || failed[0].Ref != ref {
		t.Fatalf("failed pulls = %+v, want %s", failed, ref)
	}
	archive := filepath.Join(t.TempDir(), "app.tar")
	writeDockerArchive(t, archive, map[string]v1.Image{ref: simple(t, "app")})
	if _, err := s.LoadFile(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	if _, failed := s.Pulls(); len(failed) > 0 {
		t.Errorf("failed pulls = %+v after the load, want none", failed)
	}
}

// TestLoadFrom loads an archive that is read once. Nothing but the image stays, also of one that is too large or ends.
func TestLoadFrom(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.MaxImageBytes = 1 << 20
	s := open(t, cfg)
	one := simple(t, "one")
	path := filepath.Join(t.TempDir(), "docker.tar")
	writeDockerArchive(t, path, map[string]v1.Image{"registry.test/one:v1": one})
	whole := readFile(t, path)
	for name, c := range map[string]struct {
		archive io.Reader
		want    string
	}{
		"too large": {io.LimitReader(zeros{}, 2<<20), "more than 1048576 bytes (max_image_bytes)"},
		"broken":    {iotest.TimeoutReader(iotest.HalfReader(strings.NewReader(whole))), "timeout"},
		"cut":       {strings.NewReader(whole[:len(whole)/2]), ""},
		"empty":     {strings.NewReader(""), "archive"},
	} {
		if images, err := s.LoadFrom(t.Context(), c.archive); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: LoadFrom() = %v, %v, want an error with %q", name, images, err, c.want)
		}
	}
	checkEmpty(t, s)
	loaded, err := s.LoadFrom(t.Context(), strings.NewReader(whole))
	if err != nil || len(loaded) != 1 || loaded[0].ID != imageID(t, one) {
		t.Errorf("LoadFrom() = %+v, %v, want %s", loaded, err, imageID(t, one))
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
}

// TestLoadFromAnotherRuntime: the archives that "ctr images export -" (an OCI archive and a docker archive in one, with
// names in containerd's annotation) and "podman save -m" (a docker archive with several names) write give images with
// these names.
func TestLoadFromAnotherRuntime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := simple(t, "one"), simple(t, "two")
	ctr, podman := filepath.Join(dir, "ctr.tar"), filepath.Join(dir, "podman.tar")
	writeLayout(t, filepath.Join(dir, "layout"), annotated{img: one, annotations: map[string]string{
		ociName: "v1", containerdName: "registry.test/team/one:v1"}})
	writeDockerArchive(t, podman, map[string]v1.Image{
		"registry.test/one:v1": one, "registry.test/one:latest": one, "registry.test/two:v2": two})
	writeFile(t, filepath.Join(dir, "layout", "manifest.json"),
		`[{"Config": "absent", "RepoTags": ["other:v1"], "Layers": []}]`)
	tarDir(t, filepath.Join(dir, "layout"), ctr)
	for archive, want := range map[string]map[string]v1.Image{
		ctr:    {"registry.test/team/one:v1": one, "registry.test/team/one@" + digestOf(t, one): one},
		podman: {"registry.test/one:v1": one, "registry.test/one:latest": one, "registry.test/two:v2": two},
	} {
		s := open(t, config(t))
		if _, err := s.LoadFrom(t.Context(), strings.NewReader(readFile(t, archive))); err != nil {
			t.Fatal(err)
		}
		for ref, img := range want {
			if got, err := s.Resolve(t.Context(), ref); err != nil || got.ID != imageID(t, img) {
				t.Errorf("%s: Resolve(%s) = %+v, %v, want %s", filepath.Base(archive), ref, got, err, imageID(t, img))
			}
		}
	}
}

// TestLoadNamesOfDocker: an archive that is a layout and a docker archive too, and whose index has no full names, has
// those of manifest.json.
func TestLoadNamesOfDocker(t *testing.T) {
	t.Parallel()
	one, two, three := simple(t, "one"), simple(t, "two"), simple(t, "three")
	layout := filepath.Join(t.TempDir(), "layout")
	writeNested(t, layout, "v3", listOf(t, "linux/amd64", three))
	l, err := ggcrlayout.FromPath(layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, add := range []error{
		l.AppendImage(one, ggcrlayout.WithAnnotations(map[string]string{ociName: "v1"})), l.AppendImage(two),
	} {
		if add != nil {
			t.Fatal(add)
		}
	}
	type item map[string]any
	writeJSON(t, filepath.Join(layout, "manifest.json"), []item{
		{"Config": "blobs/sha256/" + imageID(t, one), "RepoTags": []string{"r.test/one:v1", "one:v2", "", "r.test/\x00"}},
		{"Config": imageID(t, two) + ".json", "RepoTags": []string{"r.test/two:v1", "r.test/two@" + digestOf(t, one)}},
		{"Config": "sha256:" + imageID(t, three), "RepoTags": []string{"r.test/three:v1"}},
		{"Config": "none.json", "RepoTags": []string{"r.test/none:v1"}}, {"RepoTags": nil},
	})
	archive := filepath.Join(t.TempDir(), "both.tar")
	tarDir(t, layout, archive)
	for _, path := range []string{archive, layout} {
		s := open(t, config(t))
		if _, err := s.LoadFile(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		for ref, img := range map[string]v1.Image{
			"r.test/one:v1": one, "docker.io/library/one:v2": one, "r.test/one@" + digestOf(t, one): one,
			"r.test/two:v1": two, "r.test/three:v1": three,
		} {
			if got, err := s.Resolve(t.Context(), ref); err != nil || got.ID != imageID(t, img) {
				t.Errorf("Resolve(%s) = %+v, %v, want %s", ref, got, err, imageID(t, img))
			}
		}
		images, err := s.List(t.Context())
		if err != nil || len(images) != 3 {
			t.Errorf("List() = %+v, %v, want 3 images", images, err)
		}
		for _, i := range images {
			if slices.ContainsFunc(i.Tags, func(tag string) bool { return strings.HasPrefix(tag, "localhost/") }) {
				t.Errorf("tags %q, want none of the file", i.Tags)
			}
		}
	}
	for _, text := range []string{"{", "[]", "null", "[1]", strings.Repeat(" ", 5<<20)} { // not docker's
		writeFile(t, filepath.Join(layout, "manifest.json"), text)
		s := open(t, config(t))
		if _, err := s.LoadFile(t.Context(), layout); err != nil {
			t.Errorf("with a manifest.json of %.5q: %v", text, err)
		}
		if got, err := s.Resolve(t.Context(), "localhost/layout:v1"); err != nil || got.ID != imageID(t, one) {
			t.Errorf("Resolve of the name after the file = %+v, %v, want %s", got, err, imageID(t, one))
		}
	}
}

// TestLoadLinks: files of an archive may be links to others, wherever these are in the tar. The library reads no hard
// links in docker archives; the error says so.
func TestLoadLinks(t *testing.T) {
	t.Parallel()
	one := simple(t, "one")
	dir := t.TempDir()
	writeLayout(t, dir+"/layout", annotated{img: one, annotations: map[string]string{ociName: "r.test/one:v1"}})
	tarDir(t, dir+"/layout", dir+"/oci.tar")
	writeDockerArchive(t, dir+"/docker.tar", map[string]v1.Image{"r.test/one:v1": one})
	for name, kind := range map[string]byte{"hard links": tar.TypeLink, "symbolic links": tar.TypeSymlink} {
		for _, archive := range []string{"oci.tar", "docker.tar"} {
			linked := filepath.Join(t.TempDir(), archive)
			writeLinked(t, filepath.Join(dir, archive), linked, kind)
			s := open(t, config(t))
			loaded, err := s.LoadFile(t.Context(), linked)
			if archive == "docker.tar" && kind == tar.TypeLink {
				if want := "hard links"; !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s in %s: LoadFile() = %v, %v, want an error with %q", name, archive, loaded, err, want)
				}
				continue
			}
			if err != nil || len(loaded) != 1 || loaded[0].ID != imageID(t, one) {
				t.Errorf("%s in %s: LoadFile() = %v, %v, want %s", name, archive, loaded, err, imageID(t, one))
			}
		}
	}
}

// writeLinked copies a tar in which blobs, and all layers, are links to files with other names.
func writeLinked(t *testing.T, from, to string, kind byte) {
	t.Helper()
	var out bytes.Buffer
	r, w := tar.NewReader(strings.NewReader(readFile(t, from))), tar.NewWriter(&out)
	for i := 0; ; i++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		link := *h
		if h.Typeflag == tar.TypeReg && strings.Contains(h.Name, "blobs/") || strings.HasSuffix(h.Name, ".tar.gz") {
			h.Name = fmt.Sprintf("data/%d", i)
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, r); err != nil {
			t.Fatal(err)
		}
		if link.Name == h.Name {
			continue
		}
		link.Typeflag, link.Size, link.Linkname = kind, 0, h.Name
		if kind == tar.TypeSymlink {
			link.Linkname = strings.Repeat("../", strings.Count(link.Name, "/")) + h.Name
		}
		if err := w.WriteHeader(&link); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, out.String())
}

// platformOf returns the platform in the configuration of an image.
func platformOf(t *testing.T, img v1.Image) *v1.Platform {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return &v1.Platform{OS: config.OS, Architecture: config.Architecture}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestLoadFileRefuses(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "noise"), "this is no archive")
	foreign := filepath.Join(dir, "foreign")
	img := craft(t, arch("s390x"), tree{"file": "for another machine"})
	writeLayout(t, foreign, annotated{img: img, platform: platformOf(t, img)})
	for path, want := range map[string]string{
		"relative.tar":                         "not an absolute path",
		filepath.Join(dir, "absent"):           "no such file",
		filepath.Join(dir, "noise"):            "not an image archive",
		foreign:                                "no image for this node's platform",
		"/dev/null":                            "neither a directory nor a regular file",
		filepath.Join(dir, "foreign", "blobs"): "index.json",
	} {
		images, err := s.LoadFile(t.Context(), path)
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) || images != nil {
			t.Errorf("LoadFile(%s) = %v, %v, want an invalid argument with %q", path, images, err, want)
		}
	}
	checkEmpty(t, s)
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
}
