// Package containerdstore reads which images containerd has, from its files, while it is stopped.
//
// It only reads. It knows the format of containerd's metadata (a bbolt database, core/metadata/buckets.go) and the
// place of its blobs; what is in the blobs is for others. The command line uses it, to import images.
package containerdstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Namespace is containerd's namespace of what the kubelet pulls.
const Namespace = "k8s.io"

// maxImages bounds how many names are read.
const maxImages = 100_000

// Image is one image, with all of its names. Target is its manifest, or its list of manifests.
type Image struct {
	Names  []string
	Target v1.Descriptor
}

// Blobs returns the directory of the blobs, with a file <algorithm>/<hex> for each. Root is containerd's.
func Blobs(root string) string {
	return filepath.Join(root, "io.containerd.content.v1.content", "blobs")
}

// Images returns the images of a namespace, by the order of their first names. A name without an image in it, as the
// kubelet's "sha256:<config>", is one name of several.
func Images(ctx context.Context, root, namespace string) (images []Image, err error) {
	path := filepath.Join(root, "io.containerd.metadata.v1.bolt", "meta.db")
	defer func() { // of a damaged database
		if r := recover(); r != nil {
			err = fmt.Errorf("read %s: it is damaged: %v", path, r)
		}
	}()
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s is locked: stop containerd first", path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer db.Close()
	byDigest := map[digest.Digest]*Image{}
	err = db.View(func(tx *bbolt.Tx) error { return readImages(ctx, tx, namespace, byDigest) })
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, d := range slices.Sorted(maps.Keys(byDigest)) {
		slices.Sort(byDigest[d].Names)
		images = append(images, *byDigest[d])
	}
	slices.SortStableFunc(images, func(a, b Image) int { return slices.Compare(a.Names, b.Names) })
	return images, nil
}

// readImages collects the images: v1/<namespace>/images/<name>/target/{mediatype,digest,size}.
func readImages(ctx context.Context, tx *bbolt.Tx, namespace string, byDigest map[digest.Digest]*Image) error {
	bucket := tx.Bucket([]byte("v1"))
	for _, name := range []string{namespace, "images"} {
		if bucket != nil {
			bucket = bucket.Bucket([]byte(name))
		}
	}
	if bucket == nil {
		return nil // containerd has pulled nothing
	}
	count := 0
	return bucket.ForEachBucket(func(name []byte) error {
		if count++; count > maxImages {
			return fmt.Errorf("more than %d images", maxImages)
		}
		target := bucket.Bucket(name).Bucket([]byte("target"))
		if target == nil {
			return ctx.Err()
		}
		d := digest.Digest(target.Get([]byte("digest")))
		if err := d.Validate(); err != nil {
			return fmt.Errorf("image %q: %w", name, err)
		}
		size, _ := binary.Varint(target.Get([]byte("size")))
		if byDigest[d] == nil {
			byDigest[d] = &Image{Target: v1.Descriptor{
				MediaType: string(target.Get([]byte("mediatype"))), Digest: d, Size: size,
			}}
		}
		byDigest[d].Names = append(byDigest[d].Names, string(name))
		return ctx.Err()
	})
}
