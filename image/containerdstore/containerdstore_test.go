package containerdstore

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
)

// database makes containerd's database with the names and digests, in the order of name, digest.
func database(t *testing.T, pairs ...string) (root string, db *bbolt.DB) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "io.containerd.metadata.v1.bolt")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "meta.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	err = db.Update(func(tx *bbolt.Tx) error {
		for i := 0; i < len(pairs); i += 2 {
			var bucket interface {
				CreateBucketIfNotExists([]byte) (*bbolt.Bucket, error)
			} = tx
			var target *bbolt.Bucket
			for _, name := range []string{"v1", Namespace, "images", pairs[i], "target"} {
				var err error
				if target, err = bucket.CreateBucketIfNotExists([]byte(name)); err != nil {
					return err
				}
				bucket = target
			}
			for key, value := range map[string][]byte{
				"mediatype": []byte(v1.MediaTypeImageIndex), "digest": []byte(pairs[i+1]), "size": binary.AppendVarint(nil, 300),
			} {
				if err := target.Put([]byte(key), value); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return root, db
}

func TestImages(t *testing.T) {
	one, two := digest.FromString("one"), digest.FromString("two")
	root, db := database(t,
		"registry.test/b:v1", one.String(), "registry.test/b@"+one.String(), one.String(), "sha256:abc", one.String(),
		"registry.test/a:v1", two.String())
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := Images(t.Context(), root, Namespace)
	if err != nil {
		t.Fatal(err)
	}
	want := []Image{
		{Names: []string{"registry.test/a:v1"},
			Target: v1.Descriptor{MediaType: v1.MediaTypeImageIndex, Digest: two, Size: 300}},
		{Names: []string{"registry.test/b:v1", "registry.test/b@" + one.String(), "sha256:abc"},
			Target: v1.Descriptor{MediaType: v1.MediaTypeImageIndex, Digest: one, Size: 300}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Images(), -want +got:\n%s", d)
	}
	if got, err := Images(t.Context(), root, "moby"); err != nil || len(got) > 0 {
		t.Errorf("Images() of another namespace = %v, %v, want none", got, err)
	}
}

func TestImagesRefuses(t *testing.T) {
	running, _ := database(t) // open
	bad, db := database(t, "registry.test/a:v1", "sha256:../../etc/passwd")
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	damaged, db := database(t, "registry.test/a:v1", digest.FromString("one").String())
	path := db.Path()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * os.Getpagesize(); i < len(raw); i++ { // but for the two meta pages
		raw[i] = 0xff
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ root, want string }{
		"containerd runs": {running, "stop containerd first"},
		"bad digest":      {bad, "invalid checksum digest"},
		"damaged":         {damaged, "damaged"},
		"no containerd":   {t.TempDir(), "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Images(t.Context(), test.root, Namespace)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Images() = %v, %v, want an error with %q", got, err, test.want)
			}
		})
	}
}
