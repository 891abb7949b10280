package integrity

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage"
	"golang.org/x/sys/unix"
)

// fakeStorage has layers.
type fakeStorage struct {
	storage.Store
	dir    string
	layers []storage.Layer
}

func (f *fakeStorage) Layers() ([]storage.Layer, error) { return slices.Clone(f.layers), nil }

func (f *fakeStorage) Layer(id string) (*storage.Layer, error) {
	for _, l := range f.layers {
		if l.ID == id {
			return &l, nil
		}
	}
	return nil, storage.ErrLayerUnknown
}

// scene is a Checker of a storage with the layers bad, whose metadata are missing, and other, which no pull has made.
type scene struct {
	*Checker
	storage *fakeStorage
	changed int
	inUse   bool
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir := t.TempDir()
	s := &scene{storage: &fakeStorage{dir: dir, layers: []storage.Layer{
		{ID: "bad", UncompressedDigest: digest.FromString("bad")}, {ID: "other"},
	}}}
	for _, l := range s.storage.layers {
		if err := os.MkdirAll(filepath.Join(dir, l.ID, "diff"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.Checker = s.reopen(t, "boot")
	return s
}

// reopen returns the Checker of another start.
func (s *scene) reopen(t *testing.T, boot string) *Checker {
	t.Helper()
	c, err := New(Options{
		Record: filepath.Join(s.storage.dir, "record"), BootID: boot, Storage: s.storage, Log: logrus.StandardLogger(),
		Files:    func(layer string) string { return filepath.Join(s.storage.dir, layer, "diff") },
		Metadata: s.storage.dir,
		Layers:   func() map[string]bool { return map[string]bool{"bad": true, "other": true} },
		InUse:    func(string) bool { return s.inUse }, ImagesUsing: func(string) []string { return nil },
		Changed: func() error { s.changed++; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVerify: a corrupt layer is found each time, and recorded if that is asked for: once, and across starts.
func TestVerify(t *testing.T) {
	s := newScene(t)
	for i, mark := range []bool{false, true, true} {
		found, err := s.Verify(t.Context(), mark)
		if err != nil || !slices.Equal(slices.Collect(maps.Keys(found)), []string{"bad"}) {
			t.Errorf("Verify = %v, %v, want the layer bad", found, err)
		}
		if want := min(i, 1); s.changed != want || len(s.CorruptIDs()) != want {
			t.Errorf("changed %d times, corrupt: %q, want %d of each", s.changed, s.CorruptIDs(), want)
		}
	}
	if got := s.reopen(t, "boot").CorruptIDs(); !slices.Equal(got, []string{"bad"}) {
		t.Errorf("corrupt after a start: %q, want bad", got)
	}
	s.storage.layers = nil
	if err := s.ForgetDeleted(); err != nil || len(s.CorruptIDs()) > 0 {
		t.Errorf("ForgetDeleted = %v, corrupt: %q, want neither", err, s.CorruptIDs())
	}
}

// TestVerifyAfterPowerLoss: layers are verified if the boot has changed and the store was not closed, else not.
func TestVerifyAfterPowerLoss(t *testing.T) {
	s := newScene(t)
	s.VerifyAfterPowerLoss(t.Context())
	same := s.reopen(t, "boot")
	same.VerifyAfterPowerLoss(t.Context())
	if err := same.Close(); err != nil {
		t.Fatal(err)
	}
	closed := s.reopen(t, "second")
	closed.VerifyAfterPowerLoss(t.Context())
	if s.changed != 0 {
		t.Errorf("changed %d times without a power loss, want 0", s.changed)
	}
	s.reopen(t, "third").VerifyAfterPowerLoss(t.Context())
	if s.changed != 1 {
		t.Errorf("changed %d times after a power loss, want 1", s.changed)
	}
}

// TestRepair: a corrupt layer gets the fetched files. The old ones stay while a container may have them mounted.
func TestRepair(t *testing.T) {
	s := newScene(t)
	path := filepath.Join(s.storage.dir, "fetched")
	err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(path+"/file", []byte("a layer"), 0o600),
		os.WriteFile(path+".gz", nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	fetched := []Fetched{{"other", "", "/absent"}, {"bad", path, path + ".gz"}}
	if err := s.Repair(t.Context(), fetched); err != nil || s.changed > 0 {
		t.Errorf("Repair without a corrupt layer = %v, want nothing to happen", err)
	}
	if err := s.Mark("bad", "reason"); err != nil {
		t.Fatal(err)
	}
	if err := s.Repair(t.Context(), []Fetched{{"bad", "/absent", "/absent"}}); !errdefs.IsUnavailable(err) {
		t.Errorf("Repair of a layer that was not fetched = %v, want %v", err, errdefs.ErrUnavailable)
	}
	s.inUse = true
	if err := s.Repair(t.Context(), fetched); err != nil || len(s.CorruptIDs()) > 0 {
		t.Errorf("Repair = %v, corrupt: %q, want neither", err, s.CorruptIDs())
	}
	if raw, err := os.ReadFile(filepath.Join(s.Files("bad"), "file")); string(raw) != "a layer" {
		t.Errorf("the layer has %q, %v, want the fetched file", raw, err)
	}
	retired := filepath.Join(filepath.Dir(s.Files("bad")), retiredPrefix+"*")
	for _, want := range []int{1, 0} {
		s.inUse = want > 0
		s.RemoveRetired()
		if found, _ := filepath.Glob(retired); len(found) != want {
			t.Errorf("in use: %v: replaced directories: %q, want %d", s.inUse, found, want)
		}
	}
	if found, err := s.Verify(t.Context(), true); err != nil || len(found) > 0 {
		t.Errorf("Verify = %v, %v, want none: the repaired layer cannot be verified, and counts as intact", found, err)
	}
}

// TestVerificationOfReplacedFiles: the result of a verification is void if the files were replaced during it.
func TestVerificationOfReplacedFiles(t *testing.T) {
	s := newScene(t)
	before := s.record.version("bad")
	s.record.bumpVersion("bad")
	if err := s.mark("bad", before, "reason"); err != nil || len(s.CorruptIDs()) > 0 {
		t.Errorf("mark = %v, corrupt: %q, want neither", err, s.CorruptIDs())
	}
}

// TestCheckFetched: of what a pull's process leaves, only a directory and a regular file are used.
func TestCheckFetched(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(path("file"), nil, 0o600), os.Symlink("file", path("link")),
		os.Symlink("dir", path("dirlink")), unix.Mkfifo(path("pipe"), 0o600), os.Mkdir(path("dir"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ files, tarSplit, want string }{
		{"dir", "file", ""}, {"dir", "link", "wrong kind"}, {"dir", "pipe", "wrong kind"}, {"dirlink", "file", "wrong kind"},
		{"file", "file", "wrong kind"}, {"absent", "file", "pull the image again"}, {"dir", "absent", "pull the image again"},
	} {
		err := checkFetched(Fetched{Files: path(c.files), TarSplit: path(c.tarSplit)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("checkFetched(%s, %s) = %v, want %q", c.files, c.tarSplit, err, c.want)
		}
		if absent := c.files == "absent" || c.tarSplit == "absent"; absent != errdefs.IsUnavailable(err) {
			t.Errorf("checkFetched(%s, %s) = %v, unavailable: want %t", c.files, c.tarSplit, err, absent)
		}
	}
}
