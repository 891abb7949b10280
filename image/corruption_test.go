package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// corrupted is a store with images one, two (which share their lower layer) and three, not closed properly.
type corrupted struct {
	*testing.T
	reg        *testRegistry
	cfg        setup
	one, two   v1.Image
	lower, top string // directories of one's layers
}

var ownLayer = tree{"own/": "", "own/file": strings.Repeat("x", 70000), "own/empty": "", "own/link": "-> file",
	"own/void/": ""}

func newCorrupted(t *testing.T) *corrupted {
	d := &corrupted{T: t, reg: newRegistry(t)}
	base := tree{"bin/": "", "bin/app": "base"}
	d.one, d.two = craft(t, nil, base, ownLayer), craft(t, nil, base, tree{"second": "two"})
	d.reg.push(t, "one:v1", d.one)
	d.reg.push(t, "two:v1", d.two)
	d.reg.push(t, "three:v1", simple(t, "three"))
	d.cfg = config(t, d.reg.host)
	d.cfg.BootID = "first"
	s := d.open()
	for _, name := range []string{"one", "two", "three"} {
		pull(t, s, d.reg.host+"/"+name+":v1")
	}
	for _, path := range []string{rootfs(t, s, "c", imageID(t, d.one)),
		rootfs(t, s, "c3", imageID(t, simple(t, "three")))} {
		if _, err := os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	d.lower, d.top = d.layerWith("bin/app", "base"), d.layerWith("own/file", ownLayer["own/file"])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	d.reg.forget()
	return d
}

// losePower makes the store look as if the machine went down while it was open, and starts another boot.
func (d *corrupted) losePower(boot string) {
	d.Helper()
	path := filepath.Join(d.cfg.Root, "integrity.json")
	state := map[string]any{}
	err := json.Unmarshal([]byte(readFile(d, path)), &state)
	state["boot"] = d.cfg.BootID
	raw, marshalErr := json.Marshal(state)
	if err := errors.Join(err, marshalErr); err != nil {
		d.Fatal(err)
	}
	writeFile(d, path, string(raw))
	d.cfg.BootID = boot
}

func (d *corrupted) open() *image.Store {
	d.Helper()
	s, err := image.New(d.cfg.Config, d.cfg.Node, logrus.StandardLogger())
	if err != nil {
		d.Fatal(err)
	}
	return s
}

// layerWith returns the directory of the layer that has a file.
func (d *corrupted) layerWith(file, content string) string {
	d.Helper()
	dirs, err := filepath.Glob(filepath.Join(d.cfg.Root, "overlay/*/diff", file))
	if err != nil {
		d.Fatal(err)
	}
	for _, path := range dirs {
		if raw, err := os.ReadFile(path); err == nil && string(raw) == content {
			return strings.TrimSuffix(path, "/"+file)
		}
	}
	d.Fatalf("no layer has %s", file)
	return ""
}

func (d *corrupted) tarSplit(layer string) string {
	return filepath.Join(d.cfg.Root, "overlay-layers", filepath.Base(filepath.Dir(layer))+".tar-split.gz")
}

// names returns the tags of the listed images.
func names(t *testing.T, s *image.Store) string {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, img := range list {
		for _, tag := range img.Tags {
			_, name, _ := strings.Cut(tag, "/")
			out = append(out, strings.TrimSuffix(name, ":v1"))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestPowerLossCorruption: any loss in a layer is found at the next boot. Images that use the layer are hidden, the
// others are not; a pull fetches only that layer; and containers keep running.
func TestPowerLossCorruption(t *testing.T) {
	t.Parallel()
	type damage struct {
		name string
		do   func(d *corrupted) error
	}
	d := newCorrupted(t)
	for n, c := range []damage{
		{"emptied file", func(d *corrupted) error { return os.Truncate(d.top+"/own/file", 0) }},
		{"shortened file", func(d *corrupted) error { return os.Truncate(d.top+"/own/file", 69999) }},
		{"zeroed block", func(d *corrupted) error { return overwrite(d.top+"/own/file", make([]byte, 4096)) }},
		{"absent file", func(d *corrupted) error { return os.Remove(d.top + "/own/file") }},
		{"absent empty file", func(d *corrupted) error { return os.Remove(d.top + "/own/empty") }},
		{"absent link", func(d *corrupted) error { return os.Remove(d.top + "/own/link") }},
		{"absent directory", func(d *corrupted) error { return os.Remove(d.top + "/own/void") }},
		{"a FIFO in place of a file", func(d *corrupted) error {
			return errors.Join(os.Remove(d.top+"/own/file"), unix.Mkfifo(d.top+"/own/file", 0o600))
		}},
		{"all files", func(d *corrupted) error { return os.RemoveAll(d.top) }},
		{"emptied notes of the tar", func(d *corrupted) error { return os.Truncate(d.tarSplit(d.top), 0) }},
		{"absent notes of the tar", func(d *corrupted) error { return os.Remove(d.tarSplit(d.top)) }},
		{"shortened notes of the tar", func(d *corrupted) error { return os.Truncate(d.tarSplit(d.top), 60) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(d); err != nil {
				t.Fatal(err)
			}
			d.losePower(fmt.Sprint("boot ", n))
			d.reg.forget()
			s := d.open()
			defer func() {
				if err := errors.Join(s.Release(t.Context(), "new"), s.Close()); err != nil {
					t.Error(err)
				}
			}()
			eventually(t, "the corruption is found", func() bool { return names(t, s) == "three two" })
			if _, err := s.Resolve(t.Context(), imageID(t, d.one)); !errdefs.IsNotFound(err) {
				t.Errorf("the damaged image: %v, want not found", err)
			}
			if img := pull(t, s, d.reg.host+"/one:v1"); img.ID != imageID(t, d.one) {
				t.Errorf("pulled image %s, want %s", img.ID, imageID(t, d.one))
			}
			fetched := func(layer int) int { return d.reg.count("GET /v2/one/blobs/" + layerDigest(t, d.one, layer)) }
			if corrupt, intact := fetched(1), fetched(0); corrupt != 1 || intact != 0 {
				t.Errorf("corrupt layer was fetched %d times, intact layer %d times, want 1 and 0", corrupt, intact)
			}
			if d.reg.count("GET /v2/two/")+d.reg.count("GET /v2/three/") != 0 {
				t.Error("other images were asked for")
			}
			checkWhole(t, s, d)
		})
	}
	closeStore(t, d.open()) // releases what was mounted all the time
}

// TestRepairIsBounded: a registry that sends more than the manifest says, when a corrupt layer is fetched again, does
// not fill the disk.
func TestRepairIsBounded(t *testing.T) {
	t.Parallel()
	d := newCorrupted(t)
	if err := os.Truncate(d.top+"/own/file", 0); err != nil {
		t.Fatal(err)
	}
	d.losePower("second")
	s := d.open()
	defer closeStore(t, s)
	eventually(t, "the corruption is found", func() bool { return names(t, s) == "three two" })
	blob := "/v2/one/blobs/" + layerDigest(t, d.one, 1)
	const most = 64 << 20
	var sent atomic.Int64
	d.reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != blob {
			return false
		}
		for range most >> 20 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				break
			}
			sent.Add(1 << 20)
		}
		return true
	})
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: d.reg.host + "/one:v1"})
	if err == nil || !strings.Contains(err.Error(), "blob has more than") {
		t.Errorf("pull of an endless blob: %v, want an error that says more than", err)
	}
	if sent.Load() == most {
		t.Errorf("podd has read all of the %d bytes, want it to stop before", most)
	}
	checkNoFiles(t, filepath.Join(d.cfg.Root, "tmp"))
}

// checkWhole checks that all images are listed and have all of their content.
func checkWhole(t *testing.T, s *image.Store, d *corrupted) {
	t.Helper()
	if got := names(t, s); got != "one three two" {
		t.Errorf("images = %q, want %q", got, "one three two")
	}
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("Verify after the repair = %v, %v, want no corrupt layer", found, err)
	}
	path := rootfs(t, s, "new", imageID(t, d.one))
	checkFile(t, path+"/bin/app", "base")
	checkFile(t, path+"/own/file", ownLayer["own/file"])
	if link, err := os.Readlink(path + "/own/link"); err != nil || link != "file" {
		t.Errorf("Readlink = %q, %v, want %q", link, err, "file")
	}
	if info, err := os.Stat(path + "/own/void"); err != nil || !info.IsDir() || info.Mode().Perm() != 0o755 {
		t.Errorf("Stat of own/void = %v, %v, want a directory of mode 0755", info, err)
	}
}

func overwrite(path string, with []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(with)
	return errors.Join(err, f.Close())
}

// TestContainersOfCorruptLayers: a layer is replaced next to the files that containers have mounted; those are deleted
// when no container has them.
func TestContainersOfCorruptLayers(t *testing.T) {
	t.Parallel()
	d := newCorrupted(t)
	if err := overwrite(d.lower+"/bin/app", []byte("b@se")); err != nil {
		t.Fatal(err)
	}
	d.losePower("second")
	s := d.open()
	eventually(t, "the corruption is found", func() bool { return names(t, s) == "three" })
	mounted := filepath.Join(d.cfg.Root, "rootfs/c/root/merged")
	checkFile(t, mounted+"/own/file", ownLayer["own/file"])
	if err := s.Remove(t.Context(), imageID(t, d.one)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Remove of a corrupt image in use = %v, want a failed precondition", err)
	}
	pull(t, s, d.reg.host+"/two:v1")
	if n := d.reg.count("GET /v2/two/blobs/" + layerDigest(t, d.two, 0)); n != 1 {
		t.Errorf("shared layer was fetched %d times, want once", n)
	}
	checkWhole(t, s, d) // image one too: what was wrong with it was the layer that it shares
	checkFile(t, mounted+"/bin/app", "b@se")
	checkFile(t, mounted+"/own/file", ownLayer["own/file"])
	for _, id := range []string{"c", "new"} {
		if err := s.Release(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, d.cfg)
	if left, _ := filepath.Glob(filepath.Join(d.cfg.Root, "overlay/*/damaged-*")); len(left) != 0 {
		t.Errorf("replaced files left over: %v", left)
	}
	checkWhole(t, s, d)
}

// TestCorruptionIsRecorded: also a store of the same boot knows it, until a pull succeeds; a failed pull changes
// nothing.
func TestCorruptionIsRecorded(t *testing.T) {
	t.Parallel()
	d := newCorrupted(t)
	if err := os.Truncate(d.top+"/own/file", 0); err != nil {
		t.Fatal(err)
	}
	d.losePower("second")
	d.cfg.PullProgressTimeout = time.Second
	s := d.open()
	eventually(t, "the corruption is found", func() bool { return names(t, s) == "three two" })
	layer := "/blobs/" + layerDigest(t, d.one, 1)
	for _, answer := range []func(w http.ResponseWriter, r *http.Request){
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "another layer") },
		func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		d.reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layer) {
				return false
			}
			answer(w, r)
			return true
		})
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: d.reg.host + "/one:v1"}); err == nil {
			t.Error("the pull succeeded")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = d.open()
		if got := names(t, s); got != "three two" {
			t.Errorf("images after a failed pull = %q, want %q", got, "three two")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(d.cfg.Root, "tmp/*")); len(left) != 0 {
		t.Errorf("temporary files left over: %v", left)
	}
	d.reg.setGuard(nil)
	d.cfg.PullProgressTimeout = time.Minute // a busy machine needs more than a second
	s.Reconfigure(d.cfg.Config)
	pull(t, s, d.reg.host+"/one:v1")
	checkWhole(t, s, d)
	closeStore(t, s)
}

// TestRemoveCorruptImage: an image that is not listed can be removed, and pulled again.
func TestRemoveCorruptImage(t *testing.T) {
	t.Parallel()
	d := newCorrupted(t)
	if err := os.Truncate(d.top+"/own/file", 0); err != nil {
		t.Fatal(err)
	}
	s := open(t, d.cfg)
	found, err := s.Verify(t.Context(), false)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Reason, "own/file") || len(found[0].Images) != 1 ||
		!strings.Contains(found[0].Images[0], "one:v1") {
		t.Fatalf("Verify = %+v, %v, want one corrupt layer of image one", found, err)
	}
	if got := names(t, s); got != "one three two" {
		t.Errorf("images after Verify without mark = %q, want %q", got, "one three two")
	}
	if marked, err := s.Verify(t.Context(), true); err != nil || len(marked) != 1 || names(t, s) != "three two" {
		t.Errorf("Verify with mark = %+v, %v with images %q, want one layer and %q", marked, err, names(t, s), "three two")
	}
	if err := s.Release(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), d.reg.host+"/one:v1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.top); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat of the deleted layer = %v, want not found", err)
	}
	raw, err := os.ReadFile(filepath.Join(d.cfg.Root, "integrity.json"))
	if layer := filepath.Base(filepath.Dir(d.top)); err != nil || strings.Contains(string(raw), layer) {
		t.Errorf("integrity.json = %s, %v, want it without layer %s", raw, err, layer)
	}
	pull(t, s, d.reg.host+"/one:v1")
	checkWhole(t, s, d)
}

// TestWhenLayersAreVerified: after a change of the boot id unless the store was closed properly; an aborted
// verification is repeated at the next start; the store does not depend on the file otherwise.
func TestWhenLayersAreVerified(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(d *corrupted)
		want   string
	}{
		{"same boot", func(*corrupted) {}, "one three two"},
		{"another boot", func(d *corrupted) { d.losePower("second") }, "three two"},
		{"another boot after an end in order", func(d *corrupted) {
			if err := d.open().Close(); err != nil {
				d.Fatal(err)
			}
			d.cfg.BootID = "second"
		}, "one three two"},
		{"verification was ended", func(d *corrupted) {
			writeFile(d, filepath.Join(d.cfg.Root, "integrity.json"), `{"boot": "first", "pending": true}`)
		}, "three two"},
		{"unreadable", func(d *corrupted) { writeFile(d, filepath.Join(d.cfg.Root, "integrity.json"), "{") }, "three two"},
		{"from before there was such a file", func(d *corrupted) {
			if err := os.Remove(filepath.Join(d.cfg.Root, "integrity.json")); err != nil {
				d.Fatal(err)
			}
			d.cfg.BootID = "second"
		}, "one three two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newCorrupted(t)
			if err := os.Truncate(d.top+"/own/file", 0); err != nil {
				t.Fatal(err)
			}
			c.change(d)
			s := open(t, d.cfg)
			done := func() bool {
				raw, err := os.ReadFile(filepath.Join(d.cfg.Root, "integrity.json"))
				return err == nil && !strings.Contains(string(raw), "pending")
			}
			eventually(t, "it is done", done)
			if got := names(t, s); got != c.want {
				t.Errorf("images %s, want %s", got, c.want)
			}
		})
	}
}

// TestPreloadRepairs: preloaded images are repaired from their files.
func TestPreloadRepairs(t *testing.T) {
	t.Parallel()
	cfg := config(t)
	cfg.BootID = "first"
	img := craft(t, nil, tree{"a": "lower"}, ownLayer)
	writeLayout(t, filepath.Join(cfg.PreloadDir, "app"), annotated{img: img,
		annotations: map[string]string{ociName: "registry.test/one:v1"}})
	d := &corrupted{T: t, cfg: cfg}
	s := d.open()
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s); got != "one" {
		t.Fatalf("images = %q, want %q", got, "one")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.layerWith("own/file", ownLayer["own/file"])+"/own/file", 0); err != nil {
		t.Fatal(err)
	}
	d.losePower("second")
	s = open(t, d.cfg)
	eventually(t, "the corruption is found", func() bool { return names(t, s) == "" })
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s); got != "one" {
		t.Errorf("images = %q, want %q", got, "one")
	}
	checkFile(t, rootfs(t, s, "new", imageID(t, img))+"/own/file", ownLayer["own/file"])
}

// TestStrangeLayersAreIntact: tar entries that a filesystem represents in another form are no corruption.
func TestStrangeLayersAreIntact(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header",
			PAXRecords: map[string]string{"comment": "of git archive"}},
		{Typeflag: tar.TypeDir, Name: "./", Mode: 0o750},
		{Typeflag: tar.TypeDir, Name: "./usr/lib/", Mode: 0o700},
		{Typeflag: tar.TypeSymlink, Name: "lib", Linkname: "/usr/lib"},
		{Typeflag: tar.TypeReg, Name: "lib/through-a-link", Mode: 0o4755, Size: 4},
		{Typeflag: tar.TypeLink, Name: "hard", Linkname: "usr/lib/through-a-link"},
		{Typeflag: tar.TypeReg, Name: "/absolute", Size: 4},
		{Typeflag: tar.TypeReg, Name: "bytes-\xff\xfe", Size: 4},
		{Typeflag: tar.TypeReg, Name: strings.Repeat("long/", 60) + "name", Size: 4, Uid: 1 << 22, Gid: 70000},
		{Typeflag: tar.TypeReg, Name: "usr/.wh.removed"},
		{Typeflag: tar.TypeDir, Name: "opaque/"},
		{Typeflag: tar.TypeReg, Name: "opaque/.wh..wh..opq"},
		{Typeflag: tar.TypeFifo, Name: "fifo"},
		{Typeflag: tar.TypeSymlink, Name: "dangling", Linkname: "../../../../nowhere"},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(h.Name, err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "four"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	strange, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	img := craft(t, nil, tree{"usr/": "", "usr/removed": "x", "opaque/": "", "opaque/file": "x"})
	if img, err = mutate.AppendLayers(img, strange); err != nil {
		t.Fatal(err)
	}
	reg := newRegistry(t)
	reg.push(t, "strange:v1", img)
	s := open(t, config(t, reg.host))
	pull(t, s, reg.host+"/strange:v1")
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("Verify = %+v, %v, want no corrupt layer", found, err)
	}
}

// TestVerifyOpensNoDevice: a layer can have a device under the name of a file. To open one can have effects: that of a
// watchdog restarts the machine. This one does not exist: the error of opening it would say so.
func TestVerifyOpensNoDevice(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := craft(t, nil, tree{"x": "four"})
	reg.push(t, "hostile:v1", img)
	cfg := config(t, reg.host)
	s := open(t, cfg)
	pull(t, s, reg.host+"/hostile:v1")
	files, _ := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff/x"))
	if len(files) != 1 {
		t.Fatalf("files = %q, want one", files)
	}
	device := int(unix.Mkdev(1, 250))
	if err := errors.Join(os.Remove(files[0]), unix.Mknod(files[0], unix.S_IFCHR|0o600, device)); err != nil {
		t.Fatal(err)
	}
	found, err := s.Verify(t.Context(), false)
	if text := fmt.Sprint(found); err != nil || !strings.Contains(text, "not a regular file") {
		t.Errorf("Verify = %s, %v, want a file that is not a regular file", text, err)
	}
}

// TestVerifyEnds when its context ends, and when the store is closed.
func TestVerifyEnds(t *testing.T) {
	t.Parallel()
	d := newCorrupted(t)
	s := open(t, d.cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verify(ctx, true); !errors.Is(err, context.Canceled) {
		t.Errorf("Verify = %v, want context.Canceled", err)
	}
}
