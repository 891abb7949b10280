package snapshot

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/checkpoint"
)

// Key is the secret of a node that seals the manifests of its checkpoints. It is made with the first checkpoint.
type Key struct {
	// Path is the file of the key, 32 bytes that only root can read.
	Path string

	mu sync.Mutex // guards the creation of the file
}

// seal returns the seal of a manifest, in hex.
func (k *Key) seal(manifest []byte) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key, err := k.read()
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, sha256.Size)
		rand.Read(key) // never fails, see crypto/rand
		err = checkpoint.WriteFileSync(k.Path, key, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("key of this node's checkpoints: %w", err)
	}
	return hex.EncodeToString(mac(key, manifest)), nil
}

// verify returns errdefs.ErrPermissionDenied unless the seal is this node's for the manifest.
func (k *Key) verify(manifest []byte, seal string) error {
	key, err := k.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("key of this node's checkpoints: %w", err)
	}
	got, derr := hex.DecodeString(seal)
	if err != nil || derr != nil || !hmac.Equal(got, mac(key, manifest)) {
		return fmt.Errorf("%w: the seal of the checkpoint does not fit: it was made by another node, or changed since: "+
			"restore it on the node that made it, or sign it there (podd checkpoint sign) with a key that this node has in "+
			"runtime.checkpoint_keys", errdefs.ErrPermissionDenied)
	}
	return nil
}

func (k *Key) read() ([]byte, error) {
	key, err := os.ReadFile(k.Path)
	if err == nil && len(key) != sha256.Size {
		return nil, fmt.Errorf("%s has %d bytes, want %d: remove it, then earlier checkpoints cannot be restored",
			k.Path, len(key), sha256.Size)
	}
	return key, err
}

func mac(key, data []byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(data)
	return m.Sum(nil)
}
