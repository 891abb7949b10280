package image_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	goregistry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/podd-project/podd/image"
)

// foreign writes the blobs of an image, and returns the request to import it as registry.test/foreign:v1.
func foreign(t *testing.T, img goregistry.Image) image.ImportRequest {
	t.Helper()
	dir := t.TempDir()
	writeLayout(t, dir, annotated{img: img})
	kind, err := img.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	return image.ImportRequest{
		Names: []string{
			"registry.test/foreign:v1", "sha256:" + imageID(t, img), "registry.test/foreign@" + digestOf(t, img),
		},
		Manifest: v1.Descriptor{MediaType: string(kind), Digest: digest.Digest(digestOf(t, img)), Size: 1},
		Blobs:    filepath.Join(dir, "blobs"),
	}
}

func importImage(t *testing.T, s *image.Store, r image.ImportRequest) (bool, error) {
	t.Helper()
	return s.Import(t.Context(), r, func(image.PullProgress) {})
}

func TestImport(t *testing.T) {
	s := open(t, config(t))
	img := simple(t, "foreign")
	r := foreign(t, img)
	if copied, err := importImage(t, s, r); err != nil || !copied {
		t.Fatalf("Import() = %t, %v, want the image copied", copied, err)
	}
	id := imageID(t, img)
	for _, ref := range []string{"registry.test/foreign:v1", "registry.test/foreign@" + digestOf(t, img), id} {
		if got, err := s.Resolve(t.Context(), ref); err != nil || got.ID != id {
			t.Errorf("Resolve(%s) = %+v, %v, want %s", ref, got, err, id)
		}
	}
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) > 0 {
		t.Errorf("Verify() = %v, %v, want nothing", found, err)
	}

	// Again, without the blobs: nothing is read, and a new name is added.
	r.Blobs, r.Names = t.TempDir(), append(r.Names, "registry.test/other:v2")
	if copied, err := importImage(t, s, r); err != nil || copied {
		t.Errorf("second Import() = %t, %v, want nothing copied", copied, err)
	}
	if got, err := s.Resolve(t.Context(), "registry.test/other:v2"); err != nil || got.ID != imageID(t, img) {
		t.Errorf("Resolve(the new name) = %+v, %v, want %s", got, err, imageID(t, img))
	}
}

// TestImportOfAList imports a list of which only the image for this node is there, as containerd leaves it.
func TestImportOfAList(t *testing.T) {
	s := open(t, config(t))
	img := simple(t, "for this node")
	other := craft(t, arch("s390x"), tree{"file": "for another"})
	index := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: other, Descriptor: goregistry.Descriptor{Platform: &goregistry.Platform{
			OS: "linux", Architecture: "s390x"}}},
		mutate.IndexAddendum{Add: img, Descriptor: goregistry.Descriptor{Platform: platformOf(t, img)}})
	dir := t.TempDir()
	path, err := layout.Write(dir, index)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := index.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	hash := digest.FromBytes(raw)
	if err := path.WriteFile(filepath.Join("blobs/sha256", hash.Encoded()), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "blobs/sha256", digest.Digest(digestOf(t, other)).Encoded())); err != nil {
		t.Fatal(err)
	}
	_, err = importImage(t, s, image.ImportRequest{
		Names: []string{"registry.test/list:v1"}, Blobs: filepath.Join(dir, "blobs"),
		Manifest: v1.Descriptor{MediaType: v1.MediaTypeImageIndex, Digest: hash, Size: int64(len(raw))},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Resolve(t.Context(), "registry.test/list@"+hash.String())
	if err != nil || got.ID != imageID(t, img) || !slices.Contains(got.Tags, "registry.test/list:v1") {
		t.Errorf("Resolve(the list) = %+v, %v, want %s with its tag", got, err, imageID(t, img))
	}
}

func platformOf(t *testing.T, img goregistry.Image) *goregistry.Platform {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return &goregistry.Platform{OS: config.OS, Architecture: config.Architecture}
}

// TestImportRefuses: what is damaged, what the policy or the limits forbid; the store stays usable and has nothing of
// it.
func TestImportRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		config func(*testing.T, *image.Config)
		change func(*testing.T, goregistry.Image, *image.ImportRequest)
		is     func(error) bool
	}{
		"missing layer": {change: func(t *testing.T, img goregistry.Image, r *image.ImportRequest) {
			if err := os.Remove(layerFile(t, img, r)); err != nil {
				t.Fatal(err)
			}
		}},
		"changed layer": {change: func(t *testing.T, img goregistry.Image, r *image.ImportRequest) {
			writeFile(t, layerFile(t, img, r), "not this layer")
		}},
		"other content": {change: func(t *testing.T, img goregistry.Image, r *image.ImportRequest) {
			another := foreign(t, simple(t, "another"))
			raw, err := os.ReadFile(layerFile(t, simple(t, "another"), &another))
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, layerFile(t, img, r), string(raw))
		}},
		"policy": {
			config: func(t *testing.T, c *image.Config) { writeFile(t, c.Policy, `{"default":[{"type":"reject"}]}`) },
			is:     isSignature,
		},
		"policy of its registry": {
			config: func(t *testing.T, c *image.Config) {
				writeFile(t, c.Policy, `{"default":[{"type":"insecureAcceptAnything"}],
					"transports":{"docker":{"registry.test":[{"type":"reject"}]}}}`)
			},
			is: isSignature,
		},
		"limit": {config: func(_ *testing.T, c *image.Config) { c.MaxImageBytes = 1 }, is: isFull},
		"no name": {change: func(_ *testing.T, _ goregistry.Image, r *image.ImportRequest) { r.Names = r.Names[1:2] },
			is: errdefs.IsInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t)
			if test.config != nil {
				test.config(t, &cfg)
			}
			s := open(t, cfg)
			img := simple(t, "refused")
			r := foreign(t, img)
			if test.change != nil {
				test.change(t, img, &r)
			}
			copied, err := importImage(t, s, r)
			if err == nil || copied || test.is != nil && !test.is(err) {
				t.Errorf("Import() = %t, %v, want another error", copied, err)
			}
			if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
				t.Errorf("List() = %v, %v, want no image", list, err)
			}
		})
	}
}

// layerFile returns the path of the image's last layer.
func layerFile(t *testing.T, img goregistry.Image, r *image.ImportRequest) string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(r.Blobs, "sha256", digest.Digest(digestOf(t, layers[len(layers)-1])).Encoded())
}
