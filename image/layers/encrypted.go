package layers

import (
	"strings"

	"github.com/opencontainers/go-digest"
	"go.podman.io/storage"
)

// IsEncrypted reports whether a blob has the type of an encrypted layer (OCI image encryption).
func IsEncrypted(mediaType string) bool { return strings.HasSuffix(mediaType, "+encrypted") }

// WithDecrypted returns a store that finds the encrypted layers of a chain, which are all stored, by their blobs. The
// layers are not recorded with these: other images must not get them by the digest of an encrypted blob, and one may
// have been stored for a blob that is not encrypted.
func WithDecrypted(store storage.Store, chain []Layer) storage.Store {
	d := &decrypted{Store: store, diffIDs: map[digest.Digest]digest.Digest{}}
	for _, l := range chain {
		if IsEncrypted(l.Blob.MediaType) {
			d.diffIDs[l.Blob.Digest] = l.DiffID
		}
	}
	return d
}

type decrypted struct {
	storage.Store
	diffIDs map[digest.Digest]digest.Digest
}

// LayersByCompressedDigest is that of storage.Store, and finds the layers that were decrypted.
func (d *decrypted) LayersByCompressedDigest(blob digest.Digest) ([]storage.Layer, error) {
	if diffID, ok := d.diffIDs[blob]; ok {
		return d.LayersByUncompressedDigest(diffID)
	}
	return d.Store.LayersByCompressedDigest(blob)
}
