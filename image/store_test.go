package image

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/sirupsen/logrus"
	"go.podman.io/storage"
	drivers "go.podman.io/storage/drivers"

	"github.com/podd-project/podd/image/worker"
)

func testStore(t *testing.T, change func(*Config)) *Store {
	t.Helper()
	cfg := DefaultConfig()
	dir := t.TempDir()
	cfg.RegistriesConf, cfg.Policy, cfg.PreloadDir = "", "", ""
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg, Node{Root: filepath.Join(dir, "s"), RunRoot: filepath.Join(dir, "run")}, logrus.StandardLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// plant adds an image to storage without the store's knowledge.
func plant(t *testing.T, s *Store, config, name string) string {
	t.Helper()
	id := digest.FromString(config)
	man := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},"layers":[],
		"annotations":{"org.test":"kept"}}`, id, len(config))
	manifestDigest := digest.FromString(man)
	_, err := s.storage.CreateImage(id.Encoded(), []string{name}, "", "", &storage.ImageOptions{
		BigData: []storage.ImageBigDataOption{
			{Key: id.String(), Data: []byte(config), Digest: id},
			{Key: storage.ImageDigestBigDataKey, Data: []byte(man), Digest: manifestDigest},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return id.Encoded()
}

// TestChangedFromOutside: another program has added, renamed and removed an image.
func TestChangedFromOutside(t *testing.T) {
	s := testStore(t, nil)
	listed := func(want ...string) {
		t.Helper()
		s.refreshIfChanged()
		var got []string
		for _, img := range s.index.Load().images {
			got = append(got, img.Tags...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	listed()
	id := plant(t, s, `{"os":"linux","architecture":"amd64","config":{"User":"u"}}`, "h.test/a:v1")
	listed("h.test/a:v1")
	img, err := s.Resolve(t.Context(), id)
	if err != nil || img.Config.User != "u" || img.Annotations["org.test"] != "kept" {
		t.Errorf("Resolve = %+v, %v, want user u and the annotation", img, err)
	}
	if err := s.storage.SetNames(id, []string{"h.test/b:v1"}); err != nil { //nolint:staticcheck // what others may use
		t.Fatal(err)
	}
	listed("h.test/b:v1")
	before := s.index.Load()
	listed("h.test/b:v1")
	if s.index.Load() != before {
		t.Error("the index was rebuilt although nothing had changed")
	}
	if _, err := s.storage.DeleteImage(id, true); err != nil {
		t.Fatal(err)
	}
	listed()
}

// TestUnreadableImages: unreadable images are not listed and do not prevent others from being listed.
func TestUnreadableImages(t *testing.T) {
	s := testStore(t, nil)
	plant(t, s, "no json", "h.test/a:v1")
	plant(t, s, string(make([]byte, worker.MaxBlob+1)), "h.test/b:v1")
	if _, err := s.storage.CreateImage("", []string{"h.test/c:v1"}, "", "", nil); err != nil {
		t.Fatal(err)
	}
	good := plant(t, s, `{}`, "h.test/d:v1")
	s.refreshIfChanged()
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].ID != good {
		t.Errorf("List = %v, %v, want %s", list, err, good)
	}
}

// TestSyncLayers: the library syncs a layer's files before it records the layer.
func TestSyncLayers(t *testing.T) {
	driver, err := testStore(t, nil).storage.GraphDriver()
	if err != nil {
		t.Fatal(err)
	}
	if got := driver.SyncMode(); got != drivers.SyncModeFilesystem {
		t.Errorf("SyncMode() = %v, want %v", got, drivers.SyncModeFilesystem)
	}
}
