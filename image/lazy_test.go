package image_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
	"github.com/podd-project/podd/test/fuse"
)

// tocAnnotation is what eStargz calls it.
const tocAnnotation = "containerd.io/snapshot/stargz/toc.digest"

// lazyImage is an image of which layers may be in an additional layer store.
type lazyImage struct {
	v1.Image
	layers []v1.Layer
	// tocs are the digests of the layers' tables of contents, "" for none.
	tocs []string
}

// craftLazy makes an image of layers with these tables of contents, whose digests are those of the texts.
func craftLazy(t testing.TB, tocs []string, layers ...tree) lazyImage {
	t.Helper()
	out := lazyImage{Image: mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)}
	for i, files := range layers {
		add := mutate.Addendum{Layer: layer(t, files), MediaType: types.OCILayer}
		if tocs[i] != "" {
			tocs[i] = digest.FromString(tocs[i]).String()
			add.Annotations = map[string]string{tocAnnotation: tocs[i]}
		}
		img, err := mutate.Append(out.Image, add)
		if err != nil {
			t.Fatal(err)
		}
		out.Image, out.layers = img, append(out.layers, add.Layer)
	}
	out.tocs = tocs
	file, err := out.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	if out.Image, err = mutate.ConfigFile(out.Image, file); err != nil {
		t.Fatal(err)
	}
	return out
}

// layerDir is an additional layer store in a directory: podd asks no more of one than files.
type layerDir struct {
	*testing.T
	root string
}

func newLayerDir(t *testing.T) layerDir {
	d := layerDir{t, t.TempDir()}
	mountTmpfs(t, d.root, "")
	return d
}

// dir returns the directory of a layer.
func (d layerDir) dir(repo string, img lazyImage, i int) string {
	ref := repo + "@" + digestOf(d, img)
	return filepath.Join(d.root, base64.StdEncoding.EncodeToString([]byte(ref)), img.tocs[i])
}

// add adds a layer with files; change, if set, edits what the store says of it.
func (d layerDir) add(repo string, img lazyImage, i int, files tree, change func(map[string]any)) string {
	d.Helper()
	dir := d.dir(repo, img, i)
	for name, content := range files {
		writeFile(d, filepath.Join(dir, "diff", name), content)
	}
	if err := os.Chmod(filepath.Join(dir, "diff"), 0o755); err != nil {
		d.Fatal(err)
	}
	diffID, err := img.layers[i].DiffID()
	if err != nil {
		d.Fatal(err)
	}
	info := map[string]any{
		"toc-digest": img.tocs[i], "diff-size": -1, "flags": map[string]string{"expected-layer-diffid": diffID.String()},
	}
	if change != nil {
		change(info)
	}
	raw, err := json.Marshal(info)
	if err != nil {
		d.Fatal(err)
	}
	writeFile(d, filepath.Join(dir, "info"), string(raw))
	return dir
}

// blobs returns how many layers and configs were fetched.
func (r *testRegistry) blobs(repo string) int { return r.count("GET /v2/" + repo + "/blobs/") }

func read(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(raw)
}

// TestLazyPull: layers that an additional layer store has are not fetched, those above them, which it does not have,
// are. Their files are in root filesystems and volumes. The removal of the image leaves nothing.
func TestLazyPull(t *testing.T) {
	t.Parallel()
	reg, dir := newRegistry(t), newLayerDir(t)
	img := craftLazy(t, []string{"one", "", "three"}, tree{"one": "1", "both": "1"}, tree{"two": "2", "both": "2"},
		tree{"three": "3"})
	reg.push(t, "app:v1", img.Image)
	repo := reg.host + "/app"
	dir.add(repo, img, 0, tree{"one": "1", "both": "1"}, nil)
	dir.add(repo, img, 2, tree{"three": "3"}, nil)
	if err := os.Chmod(filepath.Join(dir.dir(repo, img, 2), "diff"), os.ModeSticky|0o750); err != nil {
		t.Fatal(err)
	}
	cfg := config(t, reg.host)
	cfg.AdditionalLayerStore = dir.root
	s := open(t, cfg)
	pulled := pull(t, s, repo+":v1")
	if got := reg.blobs("app"); got != 2 {
		t.Errorf("fetched %d blobs, want the config and the layer in the middle", got)
	}
	if pulled.Size == 0 {
		t.Error("the image has no size")
	}
	volume, err := s.Volume(t.Context(), image.VolumeRequest{ContainerID: "c", ImageID: pulled.ID})
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{rootfs(t, s, "c", pulled.ID), volume} {
		for name, want := range map[string]string{"one": "1", "both": "2", "two": "2", "three": "3"} {
			if got := read(t, filepath.Join(root, name)); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if info, err := os.Stat(root); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o750 {
			t.Errorf("the root directory has mode %v, %v, want that of the highest layer", info.Mode(), err)
		}
	}
	before := reg.blobs("app")
	if again := pull(t, s, repo+":v1"); again.ID != pulled.ID || reg.blobs("app") != before {
		t.Errorf("the second pull got %s and %d blobs, want %s and none", again.ID, reg.blobs("app")-before, pulled.ID)
	}
	if err := s.Export(t.Context(), pulled.ID, filepath.Join(t.TempDir(), "tar")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Export() = %v, want a refusal", err)
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), repo+":v1"); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/link"))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v, want no layer", left, err)
	}
}

// TestLazyStoreLies: what an additional layer store does not have, or has in another way than the manifest and the
// config say, is fetched.
func TestLazyStoreLies(t *testing.T) {
	t.Parallel()
	set := func(key string, value any) func(map[string]any) { return func(m map[string]any) { m[key] = value } }
	remake := func(name string, link string) func(testing.TB, string) {
		return func(t testing.TB, dir string) {
			path := filepath.Join(dir, name)
			err := os.Rename(path, path+"-real")
			if err == nil && link == "" {
				err = unix.Mkfifo(path, 0o600)
			} else if err == nil {
				err = os.Symlink(link, path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	other := digest.FromString("other").String()
	for name, c := range map[string]struct {
		change func(map[string]any)
		spoil  func(testing.TB, string)
	}{
		"has no layer":         {spoil: func(t testing.TB, dir string) { remove(t, dir) }},
		"has no files":         {spoil: func(t testing.TB, dir string) { remove(t, filepath.Join(dir, "diff")) }},
		"has no info":          {spoil: func(t testing.TB, dir string) { remove(t, filepath.Join(dir, "info")) }},
		"has a link for files": {spoil: remake("diff", "diff-real")},
		"has a link for info":  {spoil: remake("info", "info-real")},
		"has a pipe for info":  {spoil: remake("info", "")},
		"has a file for files": {spoil: func(t testing.TB, dir string) {
			remove(t, filepath.Join(dir, "diff"))
			writeFile(t, filepath.Join(dir, "diff"), "")
		}},
		"has another file system": {spoil: func(t testing.TB, dir string) {
			mountTmpfs(t.(*testing.T), filepath.Join(dir, "diff"), "")
		}},
		"says no table of contents":      {change: func(m map[string]any) { delete(m, "toc-digest") }},
		"says another table of contents": {change: set("toc-digest", other)},
		"says another digest of the tar": {change: set("diff-digest", other)},
		"says another digest in a flag":  {change: set("flags", map[string]string{"expected-layer-diffid": other})},
		"says another digest":            {change: set("compressed-diff-digest", other)},
		"says another size":              {change: set("compressed-size", 1)},
		"says too much":                  {change: set("more", strings.Repeat("x", 1<<20))},
		"says something else":            {change: set("toc-digest", 5)},
	} {
		t.Run(name, func(t *testing.T) {
			reg, dir := newRegistry(t), newLayerDir(t)
			img := craftLazy(t, []string{"a", "b"}, tree{"a": "a"}, tree{"file": "true"})
			reg.push(t, "app:v1", img.Image)
			repo := reg.host + "/app"
			dir.add(repo, img, 0, tree{"a": "a"}, nil)
			at := dir.add(repo, img, 1, tree{"file": "false"}, c.change)
			if c.spoil != nil {
				c.spoil(t, at)
			}
			cfg := config(t, reg.host)
			cfg.AdditionalLayerStore = dir.root
			s := open(t, cfg)
			pulled := pull(t, s, repo+":v1")
			if got := reg.blobs("app"); got != 2 {
				t.Errorf("fetched %d blobs, want the config and one layer", got)
			}
			if got := read(t, filepath.Join(rootfs(t, s, "c", pulled.ID), "file")); got != "true" {
				t.Errorf("the file is %q, want what the registry has", got)
			}
		})
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// TestLazyStoreGone: an image with a layer that the store does not serve any more is hidden when a container is made of
// it, and fetched as a whole by its next pull. The hidden one is removed when no container uses it.
func TestLazyStoreGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lose func(string, *setup)
		text string
	}{
		"the layer is gone": {func(layer string, _ *setup) { remove(t, layer) }, "does not serve it"},
		"the option is unset": {
			func(_ string, cfg *setup) { cfg.AdditionalLayerStore = "" }, "additional_layer_store is not set",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reg, dir := newRegistry(t), newLayerDir(t)
			img := craftLazy(t, []string{"a"}, tree{"file": "x"})
			reg.push(t, "app:v1", img.Image)
			repo := reg.host + "/app"
			layer := dir.add(repo, img, 0, tree{"file": "x"}, nil)
			cfg := config(t, reg.host)
			cfg.AdditionalLayerStore = dir.root
			s := open(t, cfg)
			lazily := pull(t, s, repo+":v1")
			rootfs(t, s, "user", lazily.ID)
			if problems, err := s.Verify(t.Context(), false); err != nil || len(problems) > 0 {
				t.Errorf("Verify() = %v, %v, want nothing", problems, err)
			}
			c.lose(layer, &cfg)
			s.Reconfigure(cfg.Config)
			problems, err := s.Verify(t.Context(), false)
			if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "does not serve it") {
				t.Errorf("Verify() = %v, %v, want the layer", problems, err)
			}
			_, err = s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: lazily.ID})
			if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Rootfs() = %v, want a failed precondition with %q", err, c.text)
			}
			if _, err := s.Resolve(t.Context(), repo+":v1"); !errdefs.IsNotFound(err) {
				t.Errorf("Resolve() = %v, want the image to be hidden", err)
			}
			whole := pull(t, s, repo+":v1")
			if whole.ID != imageID(t, img) {
				t.Errorf("the id is %s, want that of a whole image", whole.ID)
			}
			if got := read(t, filepath.Join(rootfs(t, s, "c", whole.ID), "file")); got != "x" {
				t.Errorf("the file is %q, want x", got)
			}
			if err := s.Release(t.Context(), "user"); err != nil {
				t.Fatal(err)
			}
			awaitLayers(t, cfg, 1)
		})
	}
}

// awaitLayers waits for so many layers in storage.
func awaitLayers(t *testing.T, cfg setup, want int) {
	t.Helper()
	var got []string
	for range 600 { // a minute; images are looked at every 10 s
		got, _ = filepath.Glob(filepath.Join(cfg.Root, "overlay/*/link"))
		if len(got) == want {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("layers are %v, want %d", got, want)
}

// TestLazyUserNamespace: a user namespace needs the files, which the next pull fetches.
func TestLazyUserNamespace(t *testing.T) {
	reg, dir := newRegistry(t), newLayerDir(t)
	img := craftLazy(t, []string{"a"}, tree{"file": "x"})
	reg.push(t, "app:v1", img.Image)
	dir.add(reg.host+"/app", img, 0, tree{"file": "x"}, nil)
	cfg := diskConfig(t, reg.host)
	cfg.AdditionalLayerStore = dir.root
	s := open(t, cfg)
	ids := []specs.LinuxIDMapping{{HostID: 100000, Size: 65536}}
	request := image.RootfsRequest{ContainerID: "c", UIDs: ids, GIDs: ids}
	request.ImageID = pull(t, s, reg.host+"/app:v1").ID
	_, err := s.Rootfs(t.Context(), request)
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "user namespace") {
		t.Errorf("Rootfs() = %v, want a refusal that names the user namespace", err)
	}
	request.ImageID = pull(t, s, reg.host+"/app:v1").ID
	path, err := s.Rootfs(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "file")); err != nil {
		t.Error(err)
	}
}

// TestInspectLayerStore: a store that is not mounted is named.
func TestInspectLayerStore(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	if err := registry.InspectLayerStore(cfg.Config); err != nil {
		t.Errorf("without a store: %v", err)
	}
	cfg.AdditionalLayerStore = filepath.Join(t.TempDir(), "store")
	if err := registry.InspectLayerStore(cfg.Config); err == nil || !strings.Contains(err.Error(), "nothing is mounted") {
		t.Errorf("an absent store: %v, want an error", err)
	}
	mountTmpfs(t, cfg.AdditionalLayerStore, "")
	if err := registry.InspectLayerStore(cfg.Config); err != nil {
		t.Errorf("a mounted one: %v", err)
	}
	cfg.AdditionalLayerStore = "store"
	var wrong []string
	cfg.Config.Validate(func(key string, _ error) { wrong = append(wrong, key) })
	if !slices.Equal(wrong, []string{"additional_layer_store"}) {
		t.Errorf("a relative path: Validate reports %q, want additional_layer_store", wrong)
	}
}

// TestLazyLayerIsNotShared: a lazy layer, whose tar is not verified, is not used for another image whose config names
// the same tar, whichever of the two is pulled first.
func TestLazyLayerIsNotShared(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"lazy", "whole"} {
		t.Run(first+" first", func(t *testing.T) {
			reg, dir := newRegistry(t), newLayerDir(t)
			good := craft(t, nil, tree{"file": "good"})
			evil := craftLazy(t, []string{"evil"}, tree{"file": "good"}) // says the same tar
			reg.push(t, "whole:v1", good)
			reg.push(t, "lazy:v1", evil.Image)
			dir.add(reg.host+"/lazy", evil, 0, tree{"file": "evil"}, nil)
			cfg := config(t, reg.host)
			cfg.AdditionalLayerStore = dir.root
			s := open(t, cfg)
			pull(t, s, reg.host+"/"+first+":v1")
			pull(t, s, reg.host+"/lazy:v1")
			id := pull(t, s, reg.host+"/whole:v1").ID
			if got := read(t, filepath.Join(rootfs(t, s, "c", id), "file")); got != "good" {
				t.Errorf("the file is %q, want good", got)
			}
		})
	}
}

// TestLazyStoreHangs: when the store hangs, a pull fetches the layers after 15 s, and a root filesystem is
// refused; the image stays listed. Other pulls go on.
func TestLazyStoreHangs(t *testing.T) {
	t.Parallel()
	reg, dir := newRegistry(t), newLayerDir(t)
	img := craftLazy(t, []string{"a"}, tree{"file": "x"})
	late := craftLazy(t, []string{"b"}, tree{"file": "y"})
	reg.push(t, "app:v1", img.Image)
	reg.push(t, "late:v1", late.Image)
	reg.push(t, "other:v1", simple(t, "other"))
	dir.add(reg.host+"/app", img, 0, tree{"file": "x"}, nil)
	cfg := config(t, reg.host)
	cfg.AdditionalLayerStore = dir.root
	s := open(t, cfg)
	lazily := pull(t, s, reg.host+"/app:v1")
	volume := fuse.Mount(t, dir.root)
	volume.Die()
	done := make(chan error, 2)
	go func() {
		_, err := s.Rootfs(context.WithoutCancel(t.Context()), image.RootfsRequest{ContainerID: "c", ImageID: lazily.ID})
		if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "did not answer within") {
			done <- fmt.Errorf("Rootfs() = %w, want a refusal that names the store", err)
			return
		}
		done <- nil
	}()
	go func() {
		_, err := s.Pull(context.WithoutCancel(t.Context()), image.PullRequest{Ref: reg.host + "/late:v1"})
		done <- err
	}()
	time.Sleep(time.Second) // both wait
	start := time.Now()
	pull(t, s, reg.host+"/other:v1")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("another pull took %v", took)
	}
	if len(done) > 0 {
		t.Error("nothing waits for the store")
	}
	for range 2 {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the pull or the root filesystem still waits for the store")
		}
	}
	if got := names(t, s); got != "app late other" {
		t.Errorf("images are %q, want all three", got)
	}
}
