package snapshot

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// signatureName is the file of a signature: Ed25519 of the manifest, in hex, by a key that other nodes trust.
const signatureName = "manifest.sig"

const (
	// purpose is the context of a signature (Ed25519ctx, RFC 8032): it is valid for nothing else that the key signs.
	purpose = "podd checkpoint"
	// maxKeyFile and maxKeys bound a file of public keys, in bytes, and the keys of all files.
	maxKeyFile = 64 << 10
	maxKeys    = 100
)

// Trust says whose checkpoints are restored.
type Trust struct {
	// Key has sealed the checkpoints of this node.
	Key *Key
	// PublicKeys are files with keys (PEM, Ed25519, one or several), whose signatures count like the seal. They are read
	// at every use.
	PublicKeys []string
	// Foreign accepts every seal for KindGVisor, whose images only the sandbox reads. CRIU gives processes what its images
	// say, on this node's kernel.
	Foreign bool
}

// verify returns errdefs.ErrPermissionDenied unless the manifest is one of this node, or has a trusted signature.
func (t Trust) verify(manifest []byte, seal, signature string) error {
	sealed := t.Key.verify(manifest, seal)
	if sealed == nil || signature == "" {
		return sealed
	}
	sig, err := hex.DecodeString(signature)
	if err != nil {
		return fmt.Errorf("%w: the signature of the checkpoint is not in hex", errdefs.ErrPermissionDenied)
	}
	keys, err := readPublicKeys(t.PublicKeys)
	if err != nil {
		return fmt.Errorf("runtime.checkpoint_keys: %w", err)
	}
	for _, key := range keys {
		if ed25519.VerifyWithOptions(key, manifest, sig, &ed25519.Options{Context: purpose}) == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: the signature of the checkpoint is by none of the %d keys in runtime.checkpoint_keys, "+
		"or the checkpoint was changed since", errdefs.ErrPermissionDenied, len(keys))
}

func readPublicKeys(paths []string) (keys []ed25519.PublicKey, err error) {
	for _, path := range paths {
		blocks, err := readPEM(path, "PUBLIC KEY")
		if err != nil {
			return nil, err
		}
		for _, block := range blocks {
			parsed, err := x509.ParsePKIXPublicKey(block)
			key, ok := parsed.(ed25519.PublicKey)
			if err != nil || !ok {
				return nil, fmt.Errorf("%w: %s has a key that is not of Ed25519", errdefs.ErrInvalidArgument, path)
			}
			keys = append(keys, key)
		}
	}
	if len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: %d keys, at most %d are allowed", errdefs.ErrInvalidArgument, len(keys), maxKeys)
	}
	return keys, nil
}

// readPEM returns the blocks of a file, which must be of one type; at least one.
func readPEM(path, kind string) (blocks [][]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", errdefs.ErrInvalidArgument, path, maxKeyFile)
	}
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}
		if block.Type != kind {
			return nil, fmt.Errorf("%w: %s has a block %.50q, want %q", errdefs.ErrInvalidArgument, path, block.Type, kind)
		}
		blocks, data = append(blocks, block.Bytes), rest
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("%w: %s has no block %q (PEM)", errdefs.ErrInvalidArgument, path, kind)
	}
	return blocks, nil
}

// Sign signs the checkpoint with the private key in a file (PEM, PKCS #8, Ed25519), after it has verified the images. A
// signature that the directory has is replaced.
func (s *Snapshot) Sign(ctx context.Context, path string) error {
	blocks, err := readPEM(path, "PRIVATE KEY")
	if err != nil {
		return err
	}
	parsed, err := x509.ParsePKCS8PrivateKey(blocks[0])
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok || len(blocks) > 1 {
		return fmt.Errorf("%w: %s must have one private key of Ed25519", errdefs.ErrInvalidArgument, path)
	}
	if err := s.Verify(ctx); err != nil {
		return err
	}
	sig, err := key.Sign(nil, s.raw, &ed25519.Options{Hash: crypto.Hash(0), Context: purpose})
	if err != nil {
		return fmt.Errorf("sign the manifest: %w", err)
	}
	dir, err := openDir(s.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	_ = unix.Unlinkat(int(dir.Fd()), temporary(signatureName), 0) // of a command that was killed
	return errors.Join(writeFile(dir, signatureName, []byte(hex.EncodeToString(sig))), dir.Sync())
}

// readProofs returns the seal and the signature of a checkpoint, "" for one that it does not have.
func readProofs(dir *os.File) (seal, signature string, err error) {
	s, err := readSmall(dir, sealName, maxSeal)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the seal of the checkpoint: %w", err)
	}
	sig, err := readSmall(dir, signatureName, maxSignature)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the signature of the checkpoint: %w", err)
	}
	return string(s), string(sig), nil
}
