package image_test

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/image"
)

// Names of OCI's and containerd's annotations.
const (
	ociName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// annotated is an image with the annotations of its descriptor.
type annotated struct {
	img         v1.Image
	annotations map[string]string
	platform    *v1.Platform
}

func writeLayout(t testing.TB, dir string, images ...annotated) {
	t.Helper()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range images {
		options := []layout.Option{layout.WithAnnotations(a.annotations)}
		if a.platform != nil {
			options = append(options, layout.WithPlatform(*a.platform))
		}
		if err := l.AppendImage(a.img, options...); err != nil {
			t.Fatal(err)
		}
	}
}

// tarDir packs a directory as tar(1) does, with gzip if the name says so.
func tarDir(t *testing.T, dir, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := io.WriteCloser(f)
	if strings.HasSuffix(file, ".gz") {
		out = gzip.NewWriter(f)
		defer out.Close()
	}
	w := tar.NewWriter(out)
	defer w.Close()
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
}

func writeDockerArchive(t *testing.T, file string, images map[string]v1.Image) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	tags := map[name.Tag]v1.Image{}
	for ref, img := range images {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		tags[tag] = img
	}
	if err := tarball.MultiWriteToFile(file, tags); err != nil {
		t.Fatal(err)
	}
}

func load(t *testing.T, s *image.Store) {
	t.Helper()
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkLoaded fails the test unless the store has the image by that name, pinned.
func checkLoaded(t *testing.T, s *image.Store, ref string, img v1.Image) {
	t.Helper()
	got, err := s.Resolve(t.Context(), ref)
	switch {
	case err != nil:
		t.Error(err)
	case got.ID != imageID(t, img):
		t.Errorf("%s is %s, want %s", ref, got.ID, imageID(t, img))
	case !got.Pinned:
		t.Errorf("%s is not pinned", ref)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	dir := cfg.PreloadDir
	images := map[string]v1.Image{}
	for _, n := range []string{"full", "containerd", "tag", "nameless", "archive", "zipped", "docker1", "docker2",
		"foreign"} {
		images[n] = simple(t, n)
	}
	writeLayout(t, filepath.Join(dir, "layout"),
		annotated{img: images["full"], annotations: map[string]string{ociName: "registry.test/full:v1"}},
		annotated{img: images["containerd"], annotations: map[string]string{ociName: "v2",
			containerdName: "registry.test/containerd:v2"}},
		annotated{img: images["tag"], annotations: map[string]string{ociName: "v3"}},
		annotated{img: images["nameless"]},
		annotated{img: images["foreign"], platform: &v1.Platform{OS: "linux", Architecture: "s390x"}},
	)
	writeLayout(t, filepath.Join(dir, "../a"), annotated{img: images["archive"],
		annotations: map[string]string{ociName: "registry.test/archive:v1"}})
	tarDir(t, filepath.Join(dir, "../a"), filepath.Join(dir, "archive.tar"))
	writeLayout(t, filepath.Join(dir, "../b"), annotated{img: images["zipped"],
		annotations: map[string]string{ociName: "v7"}})
	tarDir(t, filepath.Join(dir, "../b"), filepath.Join(dir, "zipped.tar.gz"))
	writeDockerArchive(t, filepath.Join(dir, "docker.tar"), map[string]v1.Image{
		"registry.test/docker:1": images["docker1"], "registry.test/docker:one": images["docker1"],
		"registry.test/docker:2": images["docker2"],
	})
	s := open(t, cfg)
	load(t, s)
	for ref, n := range map[string]string{
		"registry.test/full:v1": "full", "registry.test/containerd:v2": "containerd", "localhost/layout:v3": "tag",
		"registry.test/archive:v1": "archive", "localhost/zipped:v7": "zipped", imageID(t, images["nameless"]): "nameless",
		"registry.test/full@" + digestOf(t, images["full"]): "full",
		"registry.test/docker:1":                            "docker1", "registry.test/docker:one": "docker1",
		"registry.test/docker:2": "docker2",
	} {
		checkLoaded(t, s, ref, images[n])
	}
	if list, _ := s.List(t.Context()); len(list) != len(images)-1 {
		t.Errorf("%d images, want %d", len(list), len(images)-1)
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
	path := rootfs(t, s, "c", "registry.test/docker:2")
	checkFile(t, path+"/bin/app", "docker2")
}

func TestLoadNothing(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	s := open(t, cfg)
	load(t, s) // no such directory
	cfg2 := config(t)
	cfg2.PreloadDir = ""
	load(t, open(t, cfg2))
	checkEmpty(t, s)
}

// TestLoadSkipsBadFiles: invalid files of every kind are skipped, valid ones are loaded.
func TestLoadSkipsBadFiles(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	dir := cfg.PreloadDir
	good := simple(t, "good")
	writeDockerArchive(t, filepath.Join(dir, "zz-good.tar"), map[string]v1.Image{"registry.test/good:v1": good})
	writeDockerArchive(t, filepath.Join(dir, "foreign.tar"), map[string]v1.Image{"registry.test/foreign:v1": craft(t,
		arch("s390x"), tree{"x": ""})})
	writeFile(t, filepath.Join(dir, "text"), "no archive")
	writeFile(t, filepath.Join(dir, "empty"), "")
	writeFile(t, filepath.Join(dir, "dir/file"), "no layout")
	writeFile(t, filepath.Join(dir, "bad-layout/index.json"), "{")
	writeFile(t, filepath.Join(dir, "gone-blobs/oci-layout"), `{"imageLayoutVersion":"1.0.0"}`)
	writeFile(t, filepath.Join(dir, "gone-blobs/index.json"), `{"schemaVersion":2,"manifests":[
		{"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"digest":"sha256:`+strings.Repeat("0", 64)+`","size":7,"annotations":{"`+ociName+`":"x.test/y:z"}}]}`)
	writeFile(t, filepath.Join(dir, ".hidden"), "not looked at")
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "zz-good.tar"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "cut.tar"), string(whole[:len(whole)/2]))
	// Blobs that lead out of a layout.
	writeLayout(t, filepath.Join(dir, "escape"), annotated{img: simple(t, "escape"),
		annotations: map[string]string{ociName: "x.test/escape:v1"}})
	escapes, err := filepath.Glob(filepath.Join(dir, "escape/blobs/sha256/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, blob := range escapes {
		outside := filepath.Join(t.TempDir(), "blob")
		if err := os.Rename(blob, outside); err != nil {
			t.Fatal(err, i)
		}
		if err := os.Symlink(outside, blob); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, cfg)
	load(t, s)
	checkLoaded(t, s, "registry.test/good:v1", good)
	if list, _ := s.List(t.Context()); len(list) != 1 {
		t.Errorf("%d images, want the good one", len(list))
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
}

// TestPinnedWhileLoading: an image is pinned from the moment it is listed, while other files are still to be loaded; an
// image that was listed before and is in no file stays unpinned.
func TestPinnedWhileLoading(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "pulled:v1", simple(t, "pulled"))
	cfg := config(t, reg.host)
	writeDockerArchive(t, filepath.Join(cfg.PreloadDir, "app.tar"), map[string]v1.Image{
		"registry.test/app:v1": simple(t, "app")})
	log, hook := logtest.NewNullLogger()
	s, err := image.New(cfg.Config, cfg.Node, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	pull(t, s, reg.host+"/pulled:v1")
	loaded := false
	log.AddHook(onMessage{"preloaded images", func() {
		loaded = true
		for name, want := range map[string]bool{"registry.test/app:v1": true, reg.host + "/pulled:v1": false} {
			if img, err := s.Resolve(t.Context(), name); err != nil || img.Pinned != want {
				t.Errorf("while files are loaded: %s = %+v, %v, want pinned = %t", name, img, err, want)
			}
		}
	}})
	load(t, s)
	if !loaded {
		t.Errorf("no file was loaded: %v", hook.LastEntry())
	}
}

// onMessage calls do when a message is logged.
type onMessage struct {
	message string
	do      func()
}

func (onMessage) Levels() []logrus.Level { return logrus.AllLevels }

func (h onMessage) Fire(e *logrus.Entry) error {
	if e.Message == h.message {
		h.do()
	}
	return nil
}

// TestLoadAgain: an unchanged file is not read again, also not by the next daemon; a changed one is; the images of a
// deleted one are no longer pinned.
func TestLoadAgain(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	file := filepath.Join(cfg.PreloadDir, "app.tar")
	one, two := simple(t, "one"), simple(t, "two")
	writeDockerArchive(t, file, map[string]v1.Image{"registry.test/app:v1": one})
	first, err := image.New(cfg.Config, cfg.Node, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	load(t, first)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, cfg)
	checkLoaded(t, s, "registry.test/app:v1", one) // pinned from the start, not only when Load is done
	overwriteKeepingStamp(t, file)
	load(t, s)
	checkLoaded(t, s, "registry.test/app:v1", one)

	writeDockerArchive(t, file+".new", map[string]v1.Image{"registry.test/app:v1": two})
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	load(t, s)
	checkLoaded(t, s, "registry.test/app:v1", two)

	// Removed from the store by the user: it is loaded again.
	if err := s.Remove(t.Context(), "registry.test/app:v1"); err != nil {
		t.Fatal(err)
	}
	load(t, s)
	checkLoaded(t, s, "registry.test/app:v1", two)

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	load(t, s)
	if got, err := s.Resolve(t.Context(), "registry.test/app:v1"); err != nil || got.Pinned {
		t.Errorf("without its file: %+v %v, want it there and not pinned", got, err)
	}
}

// overwriteKeepingStamp makes a file unreadable as an archive without changing its stat.
func overwriteKeepingStamp(t *testing.T, file string) {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(strings.Repeat("x", 2048)), 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
}

func TestPinnedByName(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "infra/pause:3", simple(t, "pause"))
	reg.push(t, "app:v1", simple(t, "app"))
	cfg := config(t, reg.host)
	cfg.Pinned = []string{reg.host + "/infra/*"}
	s := open(t, cfg)
	if !pull(t, s, reg.host+"/infra/pause:3").Pinned {
		t.Error("pause is not pinned")
	}
	if pull(t, s, reg.host+"/app:v1").Pinned {
		t.Error("app is pinned")
	}
	cfg.Pinned = []string{reg.host + "/app"}
	s.Reconfigure(cfg.Config)
	for name, want := range map[string]bool{"/infra/pause:3": false, "/app:v1": true} {
		if img, err := s.Resolve(t.Context(), reg.host+name); err != nil || img.Pinned != want {
			t.Errorf("with another configuration: %s = %+v, %v, want pinned = %t", name, img, err, want)
		}
	}
}

// TestFullDisk: a pull that does not fit fails with the right error and leaves nothing, and the store keeps working.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	big := craft(t, nil, tree{"zeros": strings.Repeat("0", 24<<20)})
	reg.push(t, "big:v1", big)
	small := simple(t, "small")
	reg.push(t, "small:v1", small)
	cfg := config(t, reg.host)
	mountTmpfs(t, cfg.Root, "size=12m")
	s := open(t, cfg)
	before := used(t, cfg.Root)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/big:v1"})
	if err == nil || !isFull(err) {
		t.Fatalf("error %v, want resource exhausted", err)
	}
	checkEmpty(t, s)
	if after := used(t, cfg.Root); after > before+1<<20 {
		t.Errorf("a failed pull left %d bytes, want at most 1 MiB", after-before)
	}
	pull(t, s, reg.host+"/small:v1")
	checkFile(t, rootfs(t, s, "c", imageID(t, small))+"/bin/app", "small")
}

// used returns the size of the files below a directory.
func used(t *testing.T, dir string) int64 {
	t.Helper()
	var total int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

func TestPullsAreSorted(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	for _, n := range []string{"a", "b"} {
		reg.push(t, n+":v1", simple(t, n))
	}
	arrived, proceed := hang(t, reg, "/manifests/")
	s := open(t, config(t, reg.host))
	done := make(chan error, 2)
	for _, n := range []string{"b", "a"} {
		go func() {
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/" + n + ":v1"})
			done <- err
		}()
		<-arrived
	}
	var order []string
	for _, p := range pullsOf(s) {
		order = append(order, strings.TrimPrefix(p.Ref, reg.host))
	}
	if !slices.Equal(order, []string{"/b:v1", "/a:v1"}) {
		t.Errorf("order of pulls = %q, want b before a", order)
	}
	proceed()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
