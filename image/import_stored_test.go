package image_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goregistry "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/criostore"
)

// otherStore pulls images as the given names into a store in the format of CRI-O's, closes it, and returns its root.
func otherStore(t *testing.T, reg *testRegistry, names ...string) string {
	t.Helper()
	cfg := config(t, reg.host)
	s, err := image.New(cfg, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		pull(t, s, reg.host+"/"+name)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return cfg.Root
}

// storedIn returns the requests to import all images of a store.
func storedIn(t *testing.T, root string) (all []image.ImportRequest) {
	t.Helper()
	images, err := criostore.Images(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images {
		all = append(all, image.ImportRequest{
			Names: img.Names, Manifest: v1.Descriptor{Digest: img.Manifest}, Storage: root, Stored: img.ID,
		})
	}
	return all
}

// TestImportStored imports images from another directory of containers/storage: ids, names, digests and signatures are
// those of the other runtime, shared layers are copied once, and nothing there changes.
func TestImportStored(t *testing.T) {
	reg := newRegistry(t)
	base := tree{"etc/": "", "etc/base": "base"}
	one, two := craft(t, nil, base, tree{"one": "1"}), craft(t, nil, base, tree{"two": "2"}, tree{".wh.two": ""})
	reg.push(t, "one:v1", one)
	list := index(map[string]goregistry.Image{"linux/amd64": two, "linux/s390x": craft(t, arch("s390x"), tree{"x": ""})})
	listDigest := reg.push(t, "two:v1", list)
	other := otherStore(t, reg, "one:v1", "two:v1")
	before := treeOf(t, other)
	reg.server.Close()

	s := open(t, config(t, reg.host))
	for i, want := range []bool{true, false} {
		for _, r := range storedIn(t, other) {
			if copied, err := importImage(t, s, r); err != nil || copied != want {
				t.Fatalf("Import(%s) = %t, %v in run %d, want %t", r.Names[0], copied, err, i+1, want)
			}
		}
	}
	for ref, want := range map[string]goregistry.Image{
		"/one:v1": one, "/one@" + digestOf(t, one): one, "/two:v1": two, "/two@" + listDigest: two,
	} {
		if got, err := s.Resolve(t.Context(), reg.host+ref); err != nil || got.ID != imageID(t, want) {
			t.Errorf("Resolve(%s) = %+v, %v, want %s", ref, got, err, imageID(t, want))
		}
	}
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) > 0 {
		t.Errorf("Verify() = %v, %v, want nothing", found, err)
	}
	path, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: imageID(t, two)})
	if err != nil {
		t.Fatal(err)
	}
	if text := readFile(t, filepath.Join(path, "etc/base")); text != "base" {
		t.Errorf("/etc/base = %q, want base", text)
	}
	if _, err := os.Lstat(filepath.Join(path, "two")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("/two, which a layer removes: %v, want none", err)
	}
	if after := treeOf(t, other); !slices.Equal(before, after) {
		t.Errorf("the other directory has changed:\n%q\n%q", before, after)
	}
}

// treeOf returns the paths, modes and sizes of all files below dir.
func treeOf(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			out = append(out, path+" "+info.Mode().String()+" "+info.ModTime().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestImportStoredSigned: the signatures that the other runtime has stored satisfy a policy, and are copied.
func TestImportStoredSigned(t *testing.T) {
	n := newTeamNode(t)
	n.push(t, simple(t, "x"), n.key)
	other := otherStore(t, n.reg, "app:v1")
	r := storedIn(t, other)[0]
	policy, err := os.ReadFile(n.policy(team))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, n.cfg.Policy, rejectAll)
	if _, err := importImage(t, n.Store, r); !isSignature(err) {
		t.Errorf("Import() against the policy = %v, want an invalid signature", err)
	}
	checkEmpty(t, n.Store)
	writeFile(t, n.cfg.Policy, string(policy))
	if _, err := importImage(t, n.Store, r); err != nil {
		t.Fatal(err)
	}
	n.allow(t, team, r.Stored, true)
	n.allow(t, "others", r.Stored, true)
}

// TestImportStoredRefuses: what is wrong in the other directory does not get into the store.
func TestImportStoredRefuses(t *testing.T) {
	const base = "base"
	other := strings.Repeat("e", 64)
	for name, c := range map[string]struct {
		spoil func(t *testing.T, root string, r *image.ImportRequest)
		want  string
	}{
		"a file was changed": {func(t *testing.T, root string, _ *image.ImportRequest) {
			rewrite(t, root+"/overlay/*/diff/bin/app", func([]byte) []byte { return []byte("evil") })
		}, "checksum"},
		"a layer was replaced": {func(t *testing.T, root string, _ *image.ImportRequest) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", craft(t, nil, tree{"bin/": "", "bin/app": "evil"}))
			evil := readFile(t, only(t, otherStore(t, reg, "app:v1")+"/overlay-layers/*.tar-split.gz"))
			rewrite(t, root+"/overlay/*/diff/bin/app", func([]byte) []byte { return []byte("evil") })
			writeFile(t, root+"/overlay-layers/"+topLayer(t, root)+".tar-split.gz", evil)
		}, "does not have the digest"},
		"the config was changed": {func(t *testing.T, root string, r *image.ImportRequest) {
			rewrite(t, dataItem(root, r.Stored, "sha256:"+r.Stored), func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte("rootfs"), []byte("rootFs"))
			})
		}, "digest"},
		"an id that is not that of the config": {func(t *testing.T, root string, r *image.ImportRequest) {
			rewrite(t, root+"/overlay-images/images.json", func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte(r.Stored), []byte(other))
			})
			from, to := dataItem(root, r.Stored, "sha256:"+r.Stored), dataItem(root, r.Stored, "sha256:"+other)
			dir := root + "/overlay-images/"
			if err := errors.Join(os.Rename(from, to), os.Rename(dir+r.Stored, dir+other)); err != nil {
				t.Fatal(err)
			}
			r.Stored = other
		}, "read config"},
		"a name has the digest of another image": {func(t *testing.T, root string, r *image.ImportRequest) {
			r.Names = append(r.Names, "good.test/app@"+digest.FromString("another").String())
		}, "no manifest with the digest of its name"},
		"another digest": {func(t *testing.T, root string, r *image.ImportRequest) {
			editImages(t, root, func(img map[string]any) { img["digest"] = digest.FromString("another").String() })
		}, "no manifest"},
		"a mark of podd": {func(t *testing.T, root string, r *image.ImportRequest) {
			editImages(t, root, func(img map[string]any) {
				img["big-data-names"] = append(img["big-data-names"].([]any), "podd-loaded")
				img["big-data-sizes"].(map[string]any)["podd-loaded"] = 1
			})
			writeFile(t, dataItem(root, r.Stored, "podd-loaded"), "1")
		}, `"podd-loaded", which is none`},
		"layers are missing": {func(t *testing.T, root string, r *image.ImportRequest) {
			writeFile(t, root+"/overlay-layers/layers.json", "[]")
		}, "layer"},
		"the top layer is missing": {func(t *testing.T, root string, r *image.ImportRequest) {
			config, err := craft(t, nil, tree{base: base}).ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			editImages(t, root, func(img map[string]any) { img["layer"] = config.RootFS.DiffIDs[0].Hex })
		}, "it has 1 layers, its config 2"},
		"a layer has another id": {func(t *testing.T, root string, r *image.ImportRequest) {
			top := topLayer(t, root)
			rewrite(t, root+"/overlay-layers/layers.json", func(b []byte) []byte {
				return bytes.ReplaceAll(b, []byte(`"id":"`+top), []byte(`"id":"`+other))
			})
			editImages(t, root, func(img map[string]any) { img["layer"] = other })
		}, "another id"},
		"an image that is not there": {func(t *testing.T, root string, r *image.ImportRequest) { r.Stored = other },
			"look up image"},
		"no directory": {func(t *testing.T, root string, r *image.ImportRequest) { r.Storage = root + "/none" }, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", craft(t, nil, tree{base: base}, tree{"bin/": "", "bin/app": "good"}))
			root := otherStore(t, reg, "app:v1")
			r := storedIn(t, root)[0]
			c.spoil(t, root, &r)
			s := open(t, config(t, reg.host))
			if _, err := importImage(t, s, r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Import() = %v, want an error with %q", err, c.want)
			}
			checkEmpty(t, s)
		})
	}
}

// only returns the only file that matches a pattern.
func only(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q, %v for %s, want one", files, err, pattern)
	}
	return files[0]
}

// dataItem returns the path of a data item of an image: containers/storage encodes names with characters such as ":".
func dataItem(root, id, key string) string {
	return filepath.Join(root, "overlay-images", id, "="+base64.StdEncoding.EncodeToString([]byte(key)))
}

// topLayer returns the id of the topmost layer of the only image.
func topLayer(t *testing.T, root string) (id string) {
	t.Helper()
	editImages(t, root, func(img map[string]any) { id = img["layer"].(string) })
	return id
}

// rewrite changes the content of the only file that matches a pattern.
func rewrite(t *testing.T, pattern string, change func([]byte) []byte) {
	t.Helper()
	file := only(t, pattern)
	if err := os.WriteFile(file, change([]byte(readFile(t, file))), 0o600); err != nil {
		t.Fatal(err)
	}
}

// editImages changes the record of the only image of a store.
func editImages(t *testing.T, root string, edit func(map[string]any)) {
	t.Helper()
	rewrite(t, root+"/overlay-images/images.json", func(b []byte) []byte {
		var list []map[string]any
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		edit(list[0])
		out, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
}

// TestImportStoredIsCancelled: an import whose caller is gone ends, and another one completes it.
func TestImportStoredIsCancelled(t *testing.T) {
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	r := storedIn(t, otherStore(t, reg, "app:v1"))[0]
	s := open(t, config(t, reg.host))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Import(ctx, r, func(image.PullProgress) {}); err == nil {
		t.Error("Import() for a caller that is gone = nil, want an error")
	}
	checkEmpty(t, s)
	if copied, err := importImage(t, s, r); err != nil || !copied {
		t.Errorf("Import() = %t, %v, want the image copied", copied, err)
	}
}
