package image_test

import (
	"bytes"
	"crypto"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/podd-project/podd/image"
)

// signer signs images with a GPG key.
type signer struct{ key *openpgp.Entity }

func newSigner(t testing.TB) signer {
	t.Helper()
	key, err := openpgp.NewEntity("test", "", "test@example.org", &packet.Config{DefaultHash: crypto.SHA256})
	if err != nil {
		t.Fatal(err)
	}
	return signer{key}
}

// public returns the public key, in binary.
func (s signer) public(t testing.TB) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.key.Serialize(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sign returns a simple signature of the manifest with a digest, for ref.
func (s signer) sign(t testing.TB, ref, digest string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := openpgp.Sign(&out, s.key, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	const form = `{"critical":{"identity":{"docker-reference":%q},"image":{"docker-manifest-digest":%q},` +
		`"type":"atomic container signature"},"optional":{}}`
	if _, err := fmt.Fprintf(w, form, ref, digest); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// serveSignatures has reg serve signatures of the manifest with a digest, by OpenShift's extension of the API.
func serveSignatures(t testing.TB, reg *testRegistry, digest string, signatures ...[]byte) {
	t.Helper()
	list := []any{}
	for i, signature := range signatures {
		list = append(list, map[string]any{
			"schemaVersion": 2, "name": fmt.Sprintf("%s@%d", digest, i), "type": "atomic", "content": signature,
		})
	}
	body, err := json.Marshal(map[string]any{"signatures": list})
	if err != nil {
		t.Fatal(err)
	}
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Registry-Supports-Signatures", "1")
		if !strings.HasPrefix(r.URL.Path, "/extensions/v2/") {
			return false
		}
		_, _ = w.Write(body) // the client may have gone
		return true
	})
}

// TestPolicyWithKey: the key of a policy can be anywhere. An image whose tag is present is verified again.
func TestPolicyWithKey(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	digest := reg.push(t, "app:v1", simple(t, "x"))
	ref := reg.host + "/app:v1"
	good, other := newSigner(t), newSigner(t)
	cfg := config(t, reg.host)
	key := filepath.Join(t.TempDir(), "outside", "key.gpg")
	writeFile(t, key, good.public(t))
	writeFile(t, cfg.Policy, `{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"`+key+`"}]}`)
	s := open(t, cfg)
	serveSignatures(t, reg, digest, other.sign(t, ref, digest))
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !isSignature(err) {
		t.Errorf("error %v of an image signed by another key, want an invalid signature", err)
	}
	serveSignatures(t, reg, digest, good.sign(t, ref, digest))
	pull(t, s, ref)
	serveSignatures(t, reg, digest, other.sign(t, ref, digest))
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !isSignature(err) {
		t.Errorf("error %v of a present image signed by another key, want an invalid signature", err)
	}
}
