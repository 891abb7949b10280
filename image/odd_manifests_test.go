package image_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/worker"
)

// odd is an image whose manifest and config are as a test wants them, whatever they say about each other.
type odd struct {
	manifest v1.Manifest
	config   []byte
	layers   []v1.Layer
}

func (o odd) MediaType() (types.MediaType, error) { return o.manifest.MediaType, nil }
func (o odd) RawConfigFile() ([]byte, error)      { return o.config, nil }
func (o odd) RawManifest() ([]byte, error)        { return json.Marshal(o.manifest) }

func (o odd) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	for _, l := range o.layers {
		if d, err := l.Digest(); err == nil && d == h {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no layer %s", h)
}

// notUTF8 stands for a byte that is not UTF-8 in the config of an oddImage.
const notUTF8 = "NOT-UTF-8"

// oddImage changes the manifest and the config of an image, each without the other, and the descriptor of the config.
func oddImage(t *testing.T, of v1.Image, change func(*v1.Manifest, map[string]any)) v1.Image {
	t.Helper()
	m, err := of.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	o := odd{manifest: *m.DeepCopy()}
	if o.config, err = of.RawConfigFile(); err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(o.config, &config); err != nil {
		t.Fatal(err)
	}
	if o.layers, err = of.Layers(); err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	change(&o.manifest, config)
	if after, err := json.Marshal(config); err != nil || string(after) != string(before) {
		o.config = bytes.ReplaceAll(after, []byte(notUTF8), []byte("\xff"))
	}
	if o.manifest.Config.Digest, o.manifest.Config.Size, err = v1.SHA256(strings.NewReader(string(o.config))); err != nil {
		t.Fatal(err)
	}
	img, err := partial.CompressedToImage(o)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// layersOf returns the part of a config that names the layers.
func layersOf(config map[string]any) map[string]any {
	m, _ := config["rootfs"].(map[string]any)
	return m
}

// listOf is a list of images or lists, each with a platform; "" is none.
func listOf(t *testing.T, entries ...any) v1.ImageIndex {
	t.Helper()
	list := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i := 0; i < len(entries); i += 2 {
		add := mutate.IndexAddendum{}
		if text := fmt.Sprint(entries[i]); text != "" {
			p, err := v1.ParsePlatform(text)
			if err != nil {
				t.Fatal(err)
			}
			add.Platform = p
		}
		var ok bool
		if add.Add, ok = entries[i+1].(mutate.Appendable); !ok {
			t.Fatalf("%T is not an image", entries[i+1])
		}
		list = mutate.AppendManifests(list, add)
	}
	return list
}

// writeNested writes a layout with a list, under a name.
func writeNested(t *testing.T, dir, ref string, list v1.ImageIndex) {
	t.Helper()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendIndex(list, layout.WithAnnotations(map[string]string{ociName: ref})); err != nil {
		t.Fatal(err)
	}
}

// ways are those in which an image gets into a store, as app:v1.
var ways = map[string]func(*testing.T, *testRegistry, *image.Store, setup, v1.Image) error{
	"pull": func(t *testing.T, reg *testRegistry, s *image.Store, _ setup, img v1.Image) error {
		reg.push(t, "app:v1", img)
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		return err
	},
	"pull of a list": func(t *testing.T, reg *testRegistry, s *image.Store, _ setup, img v1.Image) error {
		reg.push(t, "app:v1", listOf(t, "linux/amd64", listOf(t, "linux/amd64", img)))
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		return err
	},
	"load of an OCI archive": func(t *testing.T, reg *testRegistry, s *image.Store, _ setup, img v1.Image) error {
		dir := t.TempDir()
		writeLayout(t, dir+"/layout", annotated{img: img, annotations: map[string]string{ociName: reg.host + "/app:v1"}})
		tarDir(t, dir+"/layout", dir+"/oci.tar")
		_, err := s.LoadFile(t.Context(), dir+"/oci.tar")
		return err
	},
	"load of a docker archive": func(t *testing.T, reg *testRegistry, s *image.Store, _ setup, img v1.Image) error {
		path := filepath.Join(t.TempDir(), "docker.tar")
		writeDockerArchive(t, path, map[string]v1.Image{reg.host + "/app:v1": img})
		_, err := s.LoadFile(t.Context(), path)
		return err
	},
	"preload": func(t *testing.T, reg *testRegistry, s *image.Store, cfg setup, img v1.Image) error {
		writeLayout(t, filepath.Join(cfg.PreloadDir, "one"),
			annotated{img: img, annotations: map[string]string{ociName: reg.host + "/app:v1"}})
		if err := s.Load(t.Context()); err != nil {
			return err
		}
		if _, err := s.Resolve(t.Context(), reg.host+"/app:v1"); err != nil {
			return fmt.Errorf("skipped: %w", errdefs.ErrInvalidArgument)
		}
		return nil
	},
}

// TestFalseLayers: an image whose layers are not those that its config names is refused in every way into the store. It
// would have the id of the image with these layers, which could then not be pulled.
func TestFalseLayers(t *testing.T) {
	t.Parallel()
	victim := craft(t, nil, tree{"a": "1"}, tree{"b": "2"})
	diffIDs := func(ids ...any) func(*v1.Manifest, map[string]any) {
		return func(_ *v1.Manifest, config map[string]any) { layersOf(config)["diff_ids"] = ids }
	}
	sha512 := "sha512:" + strings.Repeat("0", 128)
	for name, c := range map[string]struct {
		change func(*v1.Manifest, map[string]any)
		want   string
	}{
		"fewer layers": {func(m *v1.Manifest, _ map[string]any) { m.Layers = m.Layers[:1] },
			"the manifest has 1 layers, its configuration names 2"},
		"more layers": {func(m *v1.Manifest, _ map[string]any) { m.Layers = append(m.Layers, m.Layers[0]) },
			"the manifest has 3 layers, its configuration names 2"},
		"no layers": {func(m *v1.Manifest, _ map[string]any) { m.Layers = []v1.Descriptor{} },
			"the manifest has 0 layers, its configuration names 2"},
		"no digests":    {diffIDs(), "the manifest has 2 layers, its configuration names 0"},
		"empty digests": {diffIDs("", ""), "a layer in the configuration: digest"},
		"sha512":        {diffIDs(sha512, sha512), "sha512 is not supported, only sha256"},
		"other type": {func(_ *v1.Manifest, config map[string]any) { layersOf(config)["type"] = "layers+base" },
			`rootfs has the type "layers+base", want "layers"`},
	} {
		for way, try := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				reg := newRegistry(t)
				cfg := config(t, reg.host)
				s := open(t, cfg)
				err := try(t, reg, s, cfg, oddImage(t, victim, c.change))
				isDocker := way == "load of a docker archive" // the library has other errors for these
				if !errdefs.IsInvalidArgument(err) || way != "preload" && !isDocker && !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want an invalid argument with %q", err, c.want)
				}
				checkEmpty(t, s)
				reg.push(t, "victim:v1", victim)
				if got := pull(t, s, reg.host+"/victim:v1"); got.ID != imageID(t, victim) {
					t.Errorf("image %s, want %s", got.ID, imageID(t, victim))
				}
			})
		}
	}
}

// TestConfigText: a config whose variables a decoder of JSON would change is refused, and the variable named.
func TestConfigText(t *testing.T) {
	t.Parallel()
	img := oddImage(t, simple(t, "x"), func(_ *v1.Manifest, config map[string]any) {
		config["config"] = map[string]any{"Env": []string{"A=b", "LATIN=caf" + notUTF8}}
	})
	for way, try := range ways {
		reg := newRegistry(t)
		cfg := config(t, reg.host)
		s := open(t, cfg)
		err := try(t, reg, s, cfg, img)
		if !errdefs.IsInvalidArgument(err) || way != "preload" && !strings.Contains(err.Error(), `"LATIN" is not UTF-8`) {
			t.Errorf("%s: error %v, want an invalid argument that names LATIN", way, err)
		}
		checkEmpty(t, s)
	}
}

// TestNoManifest: an answer that is not a manifest is an invalid argument, not an unknown error.
func TestNoManifest(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	s := open(t, config(t, reg.host))
	for _, kind := range []types.MediaType{types.OCIManifestSchema1, types.DockerManifestSchema2, types.OCIImageIndex,
		"text/html"} {
		for _, body := range []string{"", "{}", "[]", "<html>"} {
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				w.Header().Set("Content-Type", string(kind))
				fmt.Fprint(w, body)
				return true
			})
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("pull of %q of type %q = %v, want %v", body, kind, err, errdefs.ErrInvalidArgument)
			}
		}
	}
}

// TestFewLayers: images without layers, and without the type of the rootfs, are complete.
func TestFewLayers(t *testing.T) {
	t.Parallel()
	none := craft(t, nil)
	untyped := oddImage(t, simple(t, "x"), func(_ *v1.Manifest, config map[string]any) {
		delete(layersOf(config), "type")
	})
	for way, try := range ways {
		for name, img := range map[string]v1.Image{"none": none, "untyped": untyped} {
			reg := newRegistry(t)
			cfg := config(t, reg.host)
			if err := try(t, reg, open(t, cfg), cfg, img); err != nil {
				t.Errorf("%s of %s: %v", way, name, err)
			}
		}
	}
}

// TestFalseDigest: a layout whose manifest is another one than its name says does not get a name by that digest.
func TestFalseDigest(t *testing.T) {
	t.Parallel()
	named, other := simple(t, "named"), simple(t, "other")
	dir := t.TempDir()
	name := map[string]string{ociName: "r.test/app:v1"}
	writeLayout(t, dir, annotated{img: other}, annotated{img: named, annotations: name})
	raw, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "blobs", strings.Replace(digestOf(t, named), ":", "/", 1)), string(raw))
	s := open(t, config(t))
	_, err = s.LoadFile(t.Context(), dir)
	if want := "does not have the digest " + digestOf(t, named); !errdefs.IsInvalidArgument(err) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("LoadFile() = %v, want an invalid argument with %q", err, want)
	}
	for _, ref := range []string{"r.test/app:v1", "r.test/app@" + digestOf(t, named)} {
		if got, err := s.Resolve(t.Context(), ref); !errdefs.IsNotFound(err) {
			t.Errorf("Resolve(%s) = %v, %v, want nothing", ref, got, err)
		}
	}
}

// storeFalse stores the config and manifest of an image with the layers of another one, as an older podd did.
func storeFalse(t *testing.T, cfg setup, img v1.Image, with string) {
	t.Helper()
	store, err := worker.Open(worker.Layout{Root: cfg.Root, RunRoot: cfg.RunRoot})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Free(store)
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	other, err := store.Image(with)
	if err != nil {
		t.Fatal(err)
	}
	id := imageID(t, img)
	options := &storage.ImageOptions{BigData: []storage.ImageBigDataOption{
		{Key: storage.ImageDigestBigDataKey, Data: manifest}, {Key: "sha256:" + id, Data: raw},
	}}
	stored, err := store.CreateImage(id, []string{"registry.test/false:v1"}, other.TopLayer, "", options)
	if err != nil {
		t.Fatal(err)
	}
	// podd itself checks what the process of a pull has stored, which a registry may have taken over.
	if err := worker.CheckStored(store, stored); !errdefs.IsInvalidArgument(err) {
		t.Errorf("CheckStored() = %v, want an invalid argument", err)
	}
}

// TestStoredFalseLayers: an image that an older podd has stored under the id of another one is hidden at start, and
// removed when no container uses it. Then the other one can be pulled.
func TestStoredFalseLayers(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	victim, base := craft(t, nil, tree{"a": "1"}, tree{"b": "2"}), craft(t, nil, tree{"a": "1"})
	reg.push(t, "victim:v1", victim)
	reg.push(t, "base:v1", base)
	cfg := config(t, reg.host)
	node := func(do func(*image.Store)) {
		t.Helper()
		s, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
		if err != nil {
			t.Fatal(err)
		}
		do(s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	node(func(s *image.Store) {
		got := pull(t, s, reg.host+"/base:v1")
		if _, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: got.ID}); err != nil {
			t.Fatal(err)
		}
	})
	storeFalse(t, cfg, victim, imageID(t, base))
	record := filepath.Join(cfg.Root, "rootfs/c/root/record.json") // the container is of the false image
	writeFile(t, record, strings.Replace(readFile(t, record), imageID(t, base), imageID(t, victim), 1))
	node(func(s *image.Store) {
		for _, ref := range []string{imageID(t, victim), "registry.test/false:v1"} {
			if got, err := s.Resolve(t.Context(), ref); !errdefs.IsNotFound(err) {
				t.Errorf("Resolve(%s) = %v, %v, want nothing", ref, got, err)
			}
		}
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/victim:v1"}); err == nil {
			t.Error("the image was pulled while a container has another one under its id")
		}
		if err := s.Release(t.Context(), "c"); err != nil {
			t.Error(err)
		}
	})
	node(func(s *image.Store) {
		if got := pull(t, s, reg.host+"/victim:v1"); got.ID != imageID(t, victim) {
			t.Errorf("image %s, want %s", got.ID, imageID(t, victim))
		}
		if got, err := s.Resolve(t.Context(), reg.host+"/base:v1"); err != nil || got.ID != imageID(t, base) {
			t.Errorf("Resolve of the image that it had the layers of = %v, %v, want it", got, err)
		}
	})
}

// TestNestedLists: an image in a list of lists is found by the platforms of all levels, and keeps the digest of the
// outer list.
func TestNestedLists(t *testing.T) {
	t.Parallel()
	mine, foreign := simple(t, "mine"), craft(t, arch("arm64"), tree{"x": "foreign"})
	single := listOf(t, "linux/amd64", mine)
	docker := mutate.IndexMediaType(single, types.DockerManifestList)
	note := oddImage(t, simple(t, "attestation"), func(m *v1.Manifest, _ map[string]any) {
		m.Config.MediaType = "application/vnd.in-toto+json"
	})
	attested := listOf(t, "unknown/unknown", note, "linux/amd64", mine)
	deep := any(mine)
	var levels []v1.ImageIndex
	for range 4 {
		list := listOf(t, "linux/amd64", deep)
		levels, deep = append(levels, list), list
	}
	var many []any
	for i := range 17 {
		many = append(many, "linux/amd64", listOf(t, "linux/arm64", craft(t, arch("arm64"), tree{"x": fmt.Sprint(i)})))
	}
	var one []any
	for range 20 {
		one = append(one, "linux/amd64", listOf(t, "linux/arm64", foreign))
	}
	for name, c := range map[string]struct {
		list v1.ImageIndex
		want string // of an error
	}{
		"both with platforms":    {listOf(t, "linux/amd64", single), ""},
		"inner without platform": {listOf(t, "", single), ""},
		"both without":           {listOf(t, "", listOf(t, "", mine)), ""},
		"docker's inside":        {listOf(t, "linux/amd64", docker), ""},
		"docker's outside":       {mutate.IndexMediaType(listOf(t, "linux/amd64", single), types.DockerManifestList), ""},
		"attestations":           {listOf(t, "unknown/unknown", note, "", attested), ""},
		"three levels":           {levels[2], ""},
		"four levels":            {levels[3], "more than 3 levels"},
		"others first": {listOf(t, "linux/arm64", listOf(t, "linux/arm64", foreign), "linux/amd64",
			listOf(t, "linux/arm64", foreign), "", single), ""},
		"one list twice": {listOf(t, "linux/amd64", listOf(t, "linux/arm64", foreign), "",
			listOf(t, "linux/arm64", foreign), "linux/amd64/v1", single), ""},
		"one list many times": {listOf(t, one...), "image is for linux/amd64, linux/arm64, this node"},
		"many":                {listOf(t, many...), "more than 16 lists"},
		"other things":        {listOf(t, "linux/amd64", static.NewLayer([]byte("x"), "x/y"), "linux/amd64", mine), ""},
		"nothing": {listOf(t, "linux/amd64", listOf(t, "linux/arm64", foreign), "linux/riscv64", foreign),
			"image is for linux/amd64, linux/riscv64, linux/arm64, this node"},
		"empty": {listOf(t, "linux/amd64", listOf(t)), "image is for linux/amd64, this node"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			outer := reg.push(t, "app:v1", c.list)
			s, loading := open(t, config(t, reg.host)), open(t, config(t))
			ref := reg.host + "/app:v1"
			got, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			loadErr := err
			if name != "empty" { // go-containerregistry does not write the inner list
				dir := filepath.Join(t.TempDir(), "layout")
				writeNested(t, dir, ref, c.list)
				_, loadErr = loading.LoadFile(t.Context(), dir)
			}
			if c.want != "" {
				for _, err := range []error{err, loadErr} {
					if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("error %v, want an invalid argument with %q", err, c.want)
					}
				}
				return
			}
			if err != nil || loadErr != nil {
				t.Fatalf("pull = %v, load = %v", err, loadErr)
			}
			for _, in := range []*image.Store{s, loading} {
				for _, by := range []string{ref, reg.host + "/app@" + outer, reg.host + "/app@" + digestOf(t, mine)} {
					found, err := in.Resolve(t.Context(), by)
					if err != nil || found.ID != imageID(t, mine) {
						t.Errorf("Resolve(%s) = %v, %v, want %s", by, found, err, imageID(t, mine))
					} else {
						checkNames(t, found, []string{ref}, []string{reg.host + "/app@" + outer})
					}
				}
			}
			reg.forget()
			again, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
			if err != nil || again.ID != got.ID || reg.count("GET /v2/app/") != 0 {
				t.Errorf("pull again = %v, %v with %d requests for content, want the image with none", again, err,
					reg.count("GET /v2/app/"))
			}
			if byDigest := pull(t, s, reg.host+"/app@"+outer); byDigest.ID != got.ID {
				t.Errorf("pull by digest = %s, want %s", byDigest.ID, got.ID)
			}
			file := filepath.Join(t.TempDir(), "image.tar")
			if err := s.Export(t.Context(), ref, file); err != nil {
				t.Fatal(err)
			}
			if back, err := open(t, config(t)).LoadFile(t.Context(), file); err != nil || back[0].ID != got.ID {
				t.Errorf("load of the export = %v, %v, want %s", back, err, got.ID)
			}
		})
	}
}

// TestNestedListByDigest: the first pull of a list of lists may be by digest.
func TestNestedListByDigest(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	mine := simple(t, "mine")
	outer := reg.push(t, "app:v1", listOf(t, "linux/amd64", listOf(t, "linux/amd64", mine)))
	got := pull(t, open(t, config(t, reg.host)), reg.host+"/app@"+outer)
	if got.ID != imageID(t, mine) {
		t.Errorf("image %s, want %s", got.ID, imageID(t, mine))
	}
	checkNames(t, got, nil, []string{reg.host + "/app@" + outer})
}

// TestNestedVariants: annotations select an image in a list of lists, by its own annotations or those of its list.
func TestNestedVariants(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	plain, cuda, rocm := simple(t, "plain"), simple(t, "cuda"), simple(t, "rocm")
	flavored := func(list v1.ImageIndex, flavor string, what mutate.Appendable) v1.ImageIndex {
		return mutate.AppendManifests(list, mutate.IndexAddendum{Add: what, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}, Annotations: map[string]string{flavorKey: flavor}}})
	}
	inner := flavored(listOf(t, "linux/amd64", plain), "cuda", cuda)
	reg.push(t, "ml:v1", flavored(listOf(t, "linux/amd64", inner), "rocm", listOf(t, "linux/amd64", rocm)))
	cfg := config(t, reg.host)
	cfg.VariantAnnotations = []string{flavorKey}
	s := open(t, cfg)
	for flavor, want := range map[string]v1.Image{"cuda": cuda, "rocm": rocm, "none": plain} {
		got, err := s.Pull(t.Context(), image.PullRequest{
			Ref: reg.host + "/ml:v1", Annotations: map[string]string{flavorKey: flavor}})
		if err != nil || got.ID != imageID(t, want) {
			t.Errorf("%s: %v, %v, want %s", flavor, got, err, imageID(t, want))
		}
	}
}

// TestPlatforms: the best image of a list that the CPU runs, and single images for another one.
func TestPlatforms(t *testing.T) {
	t.Parallel()
	plain, other := simple(t, "plain"), craft(t, arch("386"), tree{"x": "32 bit"})
	newest := craft(t, func(c *v1.ConfigFile) { c.Variant = "v9" }, tree{"x": "v9"})
	small := simple(t, "zstd")
	both := mutate.AppendManifests(listOf(t, "linux/amd64", plain), mutate.IndexAddendum{
		Add: small, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"},
			Annotations: map[string]string{"io.github.containers.compression.zstd": "true"}}})
	oldest := craft(t, func(c *v1.ConfigFile) { c.Variant = "v1" }, tree{"x": "v1"})
	for name, c := range map[string]struct {
		what remote.Taggable
		want v1.Image // nil: refused
	}{
		"v1":             {listOf(t, "linux/amd64/v1", plain), plain},
		"386":            {listOf(t, "linux/386", other), other},
		"386 first":      {listOf(t, "linux/386", other, "linux/amd64/v1", plain), plain},
		"too new":        {listOf(t, "linux/amd64/v9", plain), nil},
		"too new first":  {listOf(t, "linux/amd64/v9", newest, "linux/amd64", plain), plain},
		"zstd":           {both, small},
		"any":            {listOf(t, "", other, "linux/amd64", plain), plain},
		"single v1":      {oldest, oldest},
		"single too new": {newest, nil},
		"a lie":          {listOf(t, "linux/amd64", newest), nil},
	} {
		reg := newRegistry(t)
		reg.push(t, "app:v1", c.what)
		s := open(t, config(t, reg.host))
		got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
		switch {
		case c.want != nil && (err != nil || got.ID != imageID(t, c.want)):
			t.Errorf("%s: %v, %v, want %s", name, got, err, imageID(t, c.want))
		case c.want == nil && (!errdefs.IsInvalidArgument(err) ||
			!strings.Contains(err.Error(), "image is for linux/amd64/v9, this node is linux/amd64")):
			t.Errorf("%s: %v, want an invalid argument that names both platforms", name, err)
		}
	}
}

// TestArtifactsInLists: a list may have artifacts, such as a bill of materials, and entries without a platform, or with
// half of one, as "oras attach" writes them. The image is found wherever it is.
func TestArtifactsInLists(t *testing.T) {
	t.Parallel()
	const artifact = "the artifact"
	mine, foreign := simple(t, "mine"), craft(t, arch("arm64"), tree{"x": "foreign"})
	bill := oddImage(t, simple(t, "bill"), func(m *v1.Manifest, _ map[string]any) {
		m.MediaType, m.Config.MediaType = types.OCIManifestSchema1, "application/vnd.oci.empty.v1+json"
		for i := range m.Layers {
			m.Layers[i].MediaType = "application/spdx+json"
		}
	})
	for name, c := range map[string]struct {
		list v1.ImageIndex
		want string // of an error, or artifact
	}{
		"of the same platform": {listOf(t, "linux/amd64", bill, "linux/amd64", mine), ""},
		"after the image":      {listOf(t, "linux/amd64", mine, "linux/amd64", bill), ""},
		"without platforms":    {listOf(t, "", bill, "", foreign, "", mine), ""},
		"in a list":            {listOf(t, "linux/amd64", listOf(t, "linux/amd64", bill), "", listOf(t, "", mine)), ""},
		"half a platform":      {listOf(t, "linux/", bill, "linux/arm64", foreign), "image is for linux/arm64, this node is"},
		"others only":          {listOf(t, "", bill, "", foreign), "image is for linux/arm64, this node is"},
		"without an image":     {listOf(t, "", bill, "linux/", bill), artifact},
		"artifacts only":       {listOf(t, "linux/amd64", bill, "linux/arm64", bill), artifact},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", c.list)
			ref, dir := reg.host+"/app:v1", filepath.Join(t.TempDir(), "layout")
			writeNested(t, dir, ref, c.list)
			pulled, err := open(t, config(t, reg.host)).Pull(t.Context(), image.PullRequest{Ref: ref})
			loaded, loadErr := open(t, config(t)).LoadFile(t.Context(), dir)
			switch {
			case (c.want == "" || c.want == artifact) && (err != nil || loadErr != nil):
				t.Errorf("pull = %v, load = %v", err, loadErr)
			case c.want == artifact && (pulled.Config.Labels["io.podd.artifact"] == "" || loaded[0].ID != pulled.ID):
				t.Errorf("pulled %v, loaded %v, want the artifact", pulled, loaded[0])
			case c.want == artifact:
			case c.want == "" && (pulled.ID != imageID(t, mine) || loaded[0].ID != pulled.ID):
				t.Errorf("pulled %s, loaded %s, want %s", pulled.ID, loaded[0].ID, imageID(t, mine))
			case c.want != "":
				for _, err := range []error{err, loadErr} {
					if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("error %v, want an invalid argument with %q", err, c.want)
					}
				}
			}
		})
	}
}

// TestVariantOfArtifact: annotations select an artifact of a list as they select an image.
func TestVariantOfArtifact(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	list := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, flavor := range []string{"cpu", "cuda"} {
		list = mutate.AppendManifests(list, mutate.IndexAddendum{
			Add:        artifactOf(t, emptyJSON, blob{"text/plain", flavor, title, "flavor"}),
			Descriptor: v1.Descriptor{Annotations: map[string]string{"flavor": flavor}},
		})
	}
	reg.push(t, "app:v1", list)
	cfg := config(t, reg.host)
	cfg.VariantAnnotations = []string{"flavor"}
	s := open(t, cfg)
	for _, flavor := range []string{"cuda", "cpu"} {
		img, err := s.Pull(t.Context(), image.PullRequest{
			Ref: reg.host + "/app:v1", Annotations: map[string]string{"flavor": flavor},
		})
		if err != nil {
			t.Fatal(err)
		}
		path, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: flavor, ImageID: img.ID})
		if err != nil {
			t.Fatal(err)
		}
		checkFile(t, path+"/flavor", flavor)
	}
}

// TestManifestTypes: registries that do not know the type of a manifest send another one, or none.
func TestManifestTypes(t *testing.T) {
	t.Parallel()
	img := simple(t, "x")
	for _, kind := range []string{"application/json", "text/plain; charset=utf-8", "application/octet-stream", ""} {
		for name, what := range map[string]remote.Taggable{
			"single": img, "oci": ociImage(t), "list": listOf(t, "linux/amd64", listOf(t, "linux/amd64", img)),
			"docker's list": mutate.IndexMediaType(listOf(t, "linux/amd64", img), types.DockerManifestList),
		} {
			reg := newRegistry(t)
			reg.push(t, "app:v1", what)
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/manifests/") && r.Method == http.MethodGet {
					reg.inner.ServeHTTP(&untyped{w, kind}, r)
					return true
				}
				return false
			})
			if _, err := open(t, config(t, reg.host)).Pull(t.Context(),
				image.PullRequest{Ref: reg.host + "/app:v1"}); err != nil {
				t.Errorf("%s as %q: %v", name, kind, err)
			}
		}
	}
}

// untyped is an answer with another type.
type untyped struct {
	http.ResponseWriter
	kind string
}

func (u *untyped) WriteHeader(code int) {
	if u.Header()["Content-Type"] = nil; u.kind != "" {
		u.Header().Set("Content-Type", u.kind)
	}
	u.ResponseWriter.WriteHeader(code)
}

// TestMixedTypes: a manifest of OCI may have docker's type of a config, one of docker OCI's types of layers. The image
// keeps the digest of its manifest.
func TestMixedTypes(t *testing.T) {
	t.Parallel()
	layers := func(config, layer types.MediaType) func(*v1.Manifest, map[string]any) {
		return func(m *v1.Manifest, _ map[string]any) {
			m.MediaType, m.Config.MediaType, m.Layers[0].MediaType = types.DockerManifestSchema2, config, layer
		}
	}
	compressed := func(how compression.Compression) v1.Image {
		return imageOf(t, nil, layerOf(t, tree{"a": "1"}, how))
	}
	for name, mixed := range map[string]v1.Image{
		"docker config": oddImage(t, ociImage(t), func(m *v1.Manifest, _ map[string]any) {
			m.Config.MediaType = types.DockerConfigJSON
		}),
		"OCI config": oddImage(t, simple(t, "x"), layers(types.OCIConfigJSON, types.DockerLayer)),
		"OCI layer": oddImage(t, compressed(compression.None),
			layers(types.DockerConfigJSON, types.OCIUncompressedLayer)),
		"OCI layer of gzip": oddImage(t, simple(t, "x"), layers(types.OCIConfigJSON, types.OCILayer)),
		"OCI layer of zstd": oddImage(t, compressed(compression.ZStd),
			layers(types.DockerConfigJSON, types.OCILayerZStd)),
		"docker layer of zstd": oddImage(t, compressed(compression.ZStd),
			layers(types.DockerConfigJSON, "application/vnd.docker.image.rootfs.diff.tar.zstd")),
	} {
		t.Run(name, func(t *testing.T) { testMixedTypes(t, mixed) })
	}
}

func testMixedTypes(t *testing.T, mixed v1.Image) {
	t.Parallel()
	for way, try := range ways {
		reg := newRegistry(t)
		cfg := config(t, reg.host)
		s := open(t, cfg)
		if err := try(t, reg, s, cfg, mixed); err != nil {
			t.Errorf("%s: %v", way, err)
			continue
		}
		got, err := s.Resolve(t.Context(), reg.host+"/app:v1")
		if err != nil || got.ID != imageID(t, mixed) {
			t.Errorf("%s: Resolve() = %v, %v, want %s", way, got, err, imageID(t, mixed))
			continue
		}
		if want := reg.host + "/app@" + digestOf(t, mixed); way == "pull" && !slices.Equal(got.Digests, []string{want}) {
			t.Errorf("%s: digests %q, want %q", way, got.Digests, want)
		}
		if way == "pull" {
			reg.forget()
			pull(t, s, reg.host+"/app:v1")
			if n := reg.count("GET /v2/app/"); n != 0 {
				t.Errorf("%d requests of the second pull for content, want none", n)
			}
		}
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := s.Export(t.Context(), got.ID, file); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}

// TestSHA512: digests of sha512 are refused with words that say so.
func TestSHA512(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	ref := reg.host + "/app@sha512:" + strings.Repeat("0", 128)
	_, pullErr := s.Pull(t.Context(), image.PullRequest{Ref: ref})
	_, resolveErr := s.Resolve(t.Context(), ref)
	for _, err := range []error{pullErr, resolveErr} {
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "sha512 are not supported") {
			t.Errorf("error %v, want an invalid argument about sha512", err)
		}
	}
	list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"size":2,"digest":"sha512:%s",
		"platform":{"os":"linux","architecture":"amd64"}}]}`, types.OCIImageIndex, types.OCIManifestSchema1,
		strings.Repeat("0", 128))
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/v2") {
			return false
		}
		w.Header().Set("Content-Type", string(types.OCIImageIndex))
		fmt.Fprint(w, list)
		return true
	})
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v2"})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "sha512 is not supported, only sha256") {
		t.Errorf("error %v of a list, want an invalid argument about sha512", err)
	}
}
