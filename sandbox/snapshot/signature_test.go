package snapshot

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// keyFiles writes a new key pair, and returns the files and the private key.
func keyFiles(t testing.TB) (private, public string, key ed25519.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	priv, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return writePEM(t, "PRIVATE KEY", priv), writePublic(t, pub), key
}

func writePublic(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	must(t, err)
	return writePEM(t, "PUBLIC KEY", der)
}

func writePEM(t testing.TB, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key.pem")
	must(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// signed returns a checkpoint of KindCRIU with its signature, and the file of the public key.
func signed(t testing.TB) (dir, public string) {
	t.Helper()
	dir, key := output(t), newKey(t)
	must(t, dump(t, dir, key, dumper{}))
	private, public, _ := keyFiles(t)
	s, err := Open(dir, Trust{Key: key})
	must(t, err)
	must(t, s.Sign(t.Context(), private))
	must(t, s.Sign(t.Context(), private)) // it is replaced
	return dir, public
}

// TestSignature: a node restores what a key that it trusts has signed, also images of CRIU.
func TestSignature(t *testing.T) {
	dir, public := signed(t)
	_, other, _ := keyFiles(t)
	for _, keys := range [][]string{{public}, {other, public}} {
		s, err := Open(dir, Trust{Key: newKey(t), PublicKeys: keys})
		must(t, err)
		must(t, s.Verify(t.Context()))
	}
	_, wrong, err := ecdsaKey()
	must(t, err)
	unreadable := filepath.Join(t.TempDir(), "none.pem")
	for name, tt := range map[string]struct {
		keys  []string
		words string
	}{
		"no key":        {nil, "none of the 0 keys"},
		"another key":   {[]string{other}, "none of the 1 keys"},
		"absent file":   {[]string{unreadable}, "no such file"},
		"ECDSA":         {[]string{writePublic(t, wrong)}, "not of Ed25519"},
		"private key":   {[]string{writePEM(t, "PRIVATE KEY", nil)}, `block "PRIVATE KEY"`},
		"no PEM":        {[]string{os.Args[0]}, "more than"},
		"empty":         {[]string{os.DevNull}, "no block"},
		"too many keys": {slicesOf(public, maxKeys+1), "at most 100"},
	} {
		if _, err := Open(dir, Trust{Key: newKey(t), PublicKeys: tt.keys, Foreign: true}); err == nil ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: Open = %v, want an error with %q", name, err, tt.words)
		}
	}
}

func ecdsaKey() (*ecdsa.PrivateKey, *ecdsa.PublicKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	return key, &key.PublicKey, nil
}

func slicesOf(s string, n int) (list []string) {
	for range n {
		list = append(list, s)
	}
	return list
}

// TestHostileSignature: nothing else than a signature of this manifest, made for this purpose, counts.
func TestHostileSignature(t *testing.T) {
	private, public, key := keyFiles(t)
	for name, spoil := range map[string]func(dir string, manifest []byte) error{
		"manifest changed": func(d string, m []byte) error {
			return os.WriteFile(d+"/manifest.json", append(m, ' '), 0o600)
		},
		"empty":    func(d string, _ []byte) error { return os.WriteFile(d+"/manifest.sig", nil, 0o600) },
		"no hex":   func(d string, _ []byte) error { return os.WriteFile(d+"/manifest.sig", []byte("xyz"), 0o600) },
		"absent":   func(d string, _ []byte) error { return os.Remove(d + "/manifest.sig") },
		"too long": func(d string, _ []byte) error { return os.Truncate(d+"/manifest.sig", maxSignature+1) },
		"for another purpose": func(d string, m []byte) error {
			return os.WriteFile(d+"/manifest.sig", []byte(hex.EncodeToString(ed25519.Sign(key, m))), 0o600)
		},
		"a link": func(d string, _ []byte) error {
			must(t, os.Rename(d+"/manifest.sig", d+"/other.sig"))
			return os.Symlink("other.sig", d+"/manifest.sig")
		},
	} {
		dir, seal := output(t), newKey(t)
		must(t, dump(t, dir, seal, dumper{}))
		s, err := Open(dir, Trust{Key: seal})
		must(t, err)
		must(t, s.Sign(t.Context(), private))
		trust := Trust{Key: newKey(t), PublicKeys: []string{public}}
		if _, err := Open(dir, trust); err != nil {
			t.Fatalf("%s: Open before = %v, want success", name, err)
		}
		must(t, spoil(dir, s.raw))
		if _, err := Open(dir, trust); !errdefs.IsPermissionDenied(err) && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Open = %v, want %v", name, err, errdefs.ErrPermissionDenied)
		}
	}
}

// TestSignRefuses: only a checkpoint that is complete is signed, by one key of the right kind.
func TestSignRefuses(t *testing.T) {
	dir, key := output(t), newKey(t)
	must(t, dump(t, dir, key, dumper{}))
	private, public, _ := keyFiles(t)
	s, err := Open(dir, Trust{Key: key})
	must(t, err)
	wrong, _, err := ecdsaKey()
	must(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(wrong)
	must(t, err)
	for name, path := range map[string]string{
		"public key": public, "ECDSA": writePEM(t, "PRIVATE KEY", der), "damaged": writePEM(t, "PRIVATE KEY", []byte("x")),
	} {
		if err := s.Sign(t.Context(), path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Sign = %v, want %v", name, err, errdefs.ErrInvalidArgument)
		}
	}
	must(t, os.Truncate(filepath.Join(dir, KindCRIU, s.Files[0].Name), 1))
	if err := s.Sign(t.Context(), private); !errdefs.IsDataLoss(err) {
		t.Errorf("Sign of a damaged checkpoint = %v, want %v", err, errdefs.ErrDataLoss)
	}
	if _, err := os.Stat(dir + "/manifest.sig"); err == nil {
		t.Error("a signature was written, want none")
	}
}
