package worker

import (
	"errors"
	"strings"
	"testing"

	"github.com/containers/ocicrypt"
	"github.com/containers/ocicrypt/config"
	"github.com/containers/ocicrypt/keywrap"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image/layers"
)

const providerAnnotation = "org.opencontainers.image.enc.keys.provider.test"

// provider is a key provider, which the library would ask.
type provider struct {
	keywrap.KeyWrapper
	asked int
}

func (*provider) GetAnnotationID() string                     { return providerAnnotation }
func (*provider) NoPossibleKeys(map[string][][]byte) bool     { return false }
func (*provider) GetPrivateKeys(map[string][][]byte) [][]byte { return nil }
func (p *provider) UnwrapKey(*config.DecryptConfig, []byte) ([]byte, error) {
	p.asked++
	return nil, errors.New("asked")
}

// TestKeyProvidersAreNotAsked: no annotation makes podd run a key provider, even if one is configured.
func TestKeyProvidersAreNotAsked(t *testing.T) {
	p := &provider{}
	ocicrypt.RegisterKeyWrapper("provider.test", p)
	w := &worker{keys: &config.DecryptConfig{}}
	blob := types.BlobInfo{Annotations: map[string]string{p.GetAnnotationID(): "YQ=="}}
	if _, err := w.decrypt(blob, strings.NewReader("")); err == nil || p.asked != 0 {
		t.Errorf("decrypt = %v, with %d questions to a key provider, want an error and none", err, p.asked)
	}
}

// TestEncryptedLayersAreNotLazy: an additional layer store cannot decrypt, whatever table of contents is named.
func TestEncryptedLayersAreNotLazy(t *testing.T) {
	of := "sha256:" + strings.Repeat("a", 64)
	for kind, want := range map[string]string{"x.tar+gzip": of, "x.tar+gzip+encrypted": ""} {
		l := layers.Layer{Blob: types.BlobInfo{MediaType: kind, Annotations: map[string]string{
			"containerd.io/snapshot/stargz/toc.digest": of,
		}}}
		if got := tocOf(l).String(); got != want {
			t.Errorf("table of contents of a %s = %q, want %q", kind, got, want)
		}
	}
}
