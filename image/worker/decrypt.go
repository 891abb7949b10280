package worker

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containers/ocicrypt"
	"github.com/containers/ocicrypt/config"
	"github.com/containers/ocicrypt/utils"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
)

// Limits of annotations that decrypt layers: each recipient costs an operation with each private key, and the library's
// text of an error grows with each wrapped key.
const (
	maxKeyAnnotations = 1 << 20 // of an image, bytes
	maxWrappedKeys    = 100     // of a layer
)

// keyAnnotations are those that decrypt a layer: its key, wrapped with JWE or PKCS7, its HMAC and cipher. Those of
// OpenPGP, PKCS11 and key providers, which would need programs or servers, are ignored.
var keyAnnotations = []string{
	"org.opencontainers.image.enc.keys.jwe", "org.opencontainers.image.enc.keys.pkcs7",
	"org.opencontainers.image.enc.pubopts",
}

// readKeys reads the node's private keys if a layer is encrypted. It fails unless they decrypt all encrypted layers,
// before any is fetched and whether it is stored or not.
func (w *worker) readKeys(chain []layers.Layer) (err error) {
	w.keys = nil
	dir, size := w.cfg.DecryptionKeysPath, 0
	for _, l := range chain {
		if !layers.IsEncrypted(l.Blob.MediaType) {
			continue
		}
		if dir == "" {
			return fmt.Errorf("layer %s is encrypted, and decryption_keys_path is not set: %w", l.Blob.Digest,
				errdefs.ErrFailedPrecondition)
		}
		if w.keys == nil {
			if w.keys, err = privateKeys(dir); err != nil {
				return fmt.Errorf("read decryption_keys_path: %w: %w", err, errdefs.ErrFailedPrecondition)
			}
		}
		keys := 0
		for _, name := range keyAnnotations {
			size += len(l.Blob.Annotations[name])
			keys += strings.Count(l.Blob.Annotations[name], ",") + 1
		}
		if size > maxKeyAnnotations || keys > maxWrappedKeys {
			return fmt.Errorf("the annotations of encrypted layers have more than %d bytes, or more than %d keys of one: %w",
				maxKeyAnnotations, maxWrappedKeys, errdefs.ErrInvalidArgument)
		}
		if _, err := w.decrypt(l.Blob, nil); err != nil {
			return fmt.Errorf("none of the %d private keys in %s (decryption_keys_path) decrypts layer %s: %.300q: %w",
				len(w.keys.Parameters["privkeys"]), dir, l.Blob.Digest, err.Error(), errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}

// privateKeys reads the private keys in a directory, without passwords, and certificates, by which PKCS7 names keys.
// Other files are ignored.
func privateKeys(dir string) (*config.DecryptConfig, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string][][]byte{}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // such as the directories of a mounted Secret
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if isKey, _ := utils.IsPrivateKey(raw, nil); isKey {
			found["privkeys"] = append(found["privkeys"], raw)
			found["privkeys-passwords"] = append(found["privkeys-passwords"], nil)
		} else if utils.IsCertificate(raw) {
			found["x509s"] = append(found["x509s"], raw)
		}
	}
	return &config.DecryptConfig{Parameters: found}, nil
}

// decrypt returns the content of an encrypted layer, which ends with an error if its HMAC is wrong. If from is nil, it
// only decrypts the layer's key.
func (w *worker) decrypt(blob types.BlobInfo, from io.Reader) (plain io.Reader, err error) {
	defer func() {
		if r := recover(); r != nil { // of the library: for a nonce of the wrong size
			err = fmt.Errorf("the annotations of the encrypted layer are malformed: %v", r)
		}
	}()
	kept := map[string]string{}
	for _, key := range keyAnnotations {
		kept[key] = blob.Annotations[key]
	}
	plain, _, err = ocicrypt.DecryptLayer(w.keys, from, v1.Descriptor{Annotations: kept}, from == nil)
	return plain, err
}
