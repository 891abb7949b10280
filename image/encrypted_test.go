package image_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containers/ocicrypt/blockcipher"
	encconfig "github.com/containers/ocicrypt/config"
	"github.com/google/go-containerregistry/pkg/compression"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/signature"
	"go.podman.io/image/v5/types"

	"github.com/podd-project/podd/image"
)

const (
	pkcs7Key   = "org.opencontainers.image.enc.keys.pkcs7"
	jweKey     = "org.opencontainers.image.enc.keys.jwe"
	pubOptsKey = "org.opencontainers.image.enc.pubopts"
)

// imageKey is a key pair, in PEM.
type imageKey struct{ private, public, certificate string }

func newImageKey(t *testing.T) imageKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}}
	certificate, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	toPEM := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return imageKey{toPEM("PRIVATE KEY", private), toPEM("PUBLIC KEY", public), toPEM("CERTIFICATE", certificate)}
}

// copyImage copies an image as skopeo does.
func copyImage(t *testing.T, from, to types.ImageReference, options copy.Options) {
	t.Helper()
	policy, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer policy.Destroy()
	insecure := &types.SystemContext{DockerInsecureSkipTLSVerify: types.OptionalBoolTrue}
	options.SourceCtx, options.DestinationCtx = insecure, insecure
	if _, err := copy.Image(t.Context(), policy, to, from, &options); err != nil {
		t.Fatal(err)
	}
}

func dockerReference(t *testing.T, ref string) types.ImageReference {
	t.Helper()
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		t.Fatal(err)
	}
	to, err := docker.NewReference(named)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// encrypt pushes an image as plain:v1, and encrypted for keys as secret:v1: the layers with these indexes, or all. It
// returns the digest of the latter.
func (r *testRegistry) encrypt(t *testing.T, img v1.Image, with encconfig.CryptoConfig, layers ...int) string {
	t.Helper()
	r.push(t, "docker:v1", img)
	copyImage(t, dockerReference(t, r.host+"/docker:v1"), dockerReference(t, r.host+"/plain:v1"),
		copy.Options{ForceManifestMIMEType: ocispec.MediaTypeImageManifest}) // encryption would change the type and the id
	copyImage(t, dockerReference(t, r.host+"/plain:v1"), dockerReference(t, r.host+"/secret:v1"),
		copy.Options{OciEncryptConfig: with.EncryptConfig, OciEncryptLayers: &layers})
	return digestOf(t, r.remote(t, "secret:v1"))
}

func (r *testRegistry) remote(t *testing.T, ref string) v1.Image {
	t.Helper()
	parsed, err := name.ParseReference(r.host+"/"+ref, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	img, err := remote.Image(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// forKeys encrypts with JWE.
func forKeys(t *testing.T, keys ...imageKey) encconfig.CryptoConfig {
	t.Helper()
	var public [][]byte
	for _, key := range keys {
		public = append(public, []byte(key.public))
	}
	with, err := encconfig.EncryptWithJwe(public)
	if err != nil {
		t.Fatal(err)
	}
	return with
}

// withKeys sets a directory with files as decryption_keys_path.
func withKeys(t *testing.T, cfg setup, files map[string]string) setup {
	t.Helper()
	cfg.DecryptionKeysPath = t.TempDir()
	for name, content := range files {
		writeFile(t, filepath.Join(cfg.DecryptionKeysPath, name), content)
	}
	return cfg
}

// secretImage has two layers.
func secretImage(t *testing.T, how compression.Compression) v1.Image {
	return imageOf(t, nil, layerOf(t, tree{"etc/": "", "etc/low": strings.Repeat("low", 9000)}, how),
		layerOf(t, tree{"etc/high": "high"}, how))
}

// checkSecret checks the files of secretImage in the store, and its layers.
func checkSecret(t *testing.T, s *image.Store, img *image.Image) {
	t.Helper()
	dir := rootfs(t, s, "c", img.ID)
	for file, want := range map[string]string{"etc/low": strings.Repeat("low", 9000), "etc/high": "high"} {
		if got, err := os.ReadFile(filepath.Join(dir, file)); err != nil || string(got) != want {
			t.Errorf("%s = %.20q, %v, want %.20q", file, got, err, want)
		}
	}
	if found, err := s.Verify(t.Context(), false); err != nil || len(found) != 0 {
		t.Errorf("Verify = %v, %v, want no corrupt layer", found, err)
	}
}

// TestEncryptedImages: a pull decrypts layers with the keys in decryption_keys_path. The image keeps the digest of the
// encrypted manifest.
func TestEncryptedImages(t *testing.T) {
	t.Parallel()
	key, other := newImageKey(t), newImageKey(t)
	pkcs7, err := encconfig.EncryptWithPkcs7([][]byte{[]byte(key.certificate)})
	if err != nil {
		t.Fatal(err)
	}
	der, _ := pem.Decode([]byte(key.private))
	for name, c := range map[string]struct {
		how    compression.Compression
		with   encconfig.CryptoConfig
		layers []int
		keys   map[string]string
	}{
		"right key": {compression.GZip, forKeys(t, key), nil, map[string]string{"key.pem": key.private}},
		"several keys": {compression.GZip, forKeys(t, newImageKey(t), key), nil, map[string]string{
			"a.pem": other.private, "b": key.private, "b.crt": other.certificate, "README": "what is here", "dir/x": "",
		}},
		"pkcs7": {compression.GZip, pkcs7, nil, map[string]string{
			"k.der": string(der.Bytes), "k.crt": key.certificate,
		}},
		"zstd":        {compression.ZStd, forKeys(t, key), nil, map[string]string{"key.pem": key.private}},
		"plain":       {compression.None, forKeys(t, key), nil, map[string]string{"key.pem": key.private}},
		"some layers": {compression.GZip, forKeys(t, key), []int{1}, map[string]string{"key.pem": key.private}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			digest := reg.encrypt(t, secretImage(t, c.how), c.with, c.layers...)
			cfg := withKeys(t, config(t, reg.host), c.keys)
			s := open(t, cfg)
			img := pull(t, s, reg.host+"/secret:v1")
			checkNames(t, img, []string{reg.host + "/secret:v1"}, []string{reg.host + "/secret@" + digest})
			checkSecret(t, s, img)
			checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))

			file := filepath.Join(t.TempDir(), "archive")
			if err := s.Export(t.Context(), img.ID, file); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("Export = %v, want %v: the manifest says that layers are encrypted", err,
					errdefs.ErrFailedPrecondition)
			}
		})
	}
}

// TestEncryptedLayersOfStore: layers that the store has are not fetched, encrypted or not, but an encrypted image needs
// its key.
func TestEncryptedLayersOfStore(t *testing.T) {
	t.Parallel()
	key, reg := newImageKey(t), newRegistry(t)
	digest := reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
	cfg := withKeys(t, config(t, reg.host), nil)
	s := open(t, cfg)
	plain := pull(t, s, reg.host+"/plain:v1")
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/secret:v1"})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Pull without a key = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
	writeFile(t, filepath.Join(cfg.DecryptionKeysPath, "..data/new.pem"), key.private) // as a mounted Secret
	if err := os.Symlink("..data/new.pem", filepath.Join(cfg.DecryptionKeysPath, "new.pem")); err != nil {
		t.Fatal(err)
	}
	reg.forget()
	img := pull(t, s, reg.host+"/secret:v1")
	if n := reg.count("GET /v2/secret/blobs/"); n > 1 || img.ID != plain.ID {
		t.Errorf("image %s, %d requests for blobs, want %s and one, for the config", img.ID, n, plain.ID)
	}
	if !slices.Contains(img.Digests, reg.host+"/secret@"+digest) {
		t.Errorf("digests %v, want %s among them", img.Digests, digest)
	}
	checkSecret(t, s, img)
}

// TestEncryptedBlobIsNoLayer: an image that has an encrypted blob as a layer that is not encrypted does not get the
// decrypted one.
func TestEncryptedBlobIsNoLayer(t *testing.T) {
	t.Parallel()
	key, reg := newImageKey(t), newRegistry(t)
	reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
	s := open(t, withKeys(t, config(t, reg.host), map[string]string{"key": key.private}))
	pull(t, s, reg.host+"/secret:v1")
	reg.push(t, "secret:v2", oddImage(t, reg.remote(t, "secret:v1"), func(m *v1.Manifest, _ map[string]any) {
		for i := range m.Layers {
			m.Layers[i].MediaType = ocispec.MediaTypeImageLayerGzip
		}
	}))
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/secret:v2"}); err == nil {
		t.Error("Pull = nil, want an error")
	}
}

// TestEncryptedLayerIsRepaired: a corrupt layer is fetched and decrypted again.
func TestEncryptedLayerIsRepaired(t *testing.T) {
	t.Parallel()
	key, reg := newImageKey(t), newRegistry(t)
	reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
	d := &corrupted{T: t, reg: reg, cfg: withKeys(t, config(t, reg.host), map[string]string{"key": key.private})}
	s := open(t, d.cfg)
	pull(t, s, reg.host+"/secret:v1")
	if err := os.Truncate(d.layerWith("etc/high", "high")+"/etc/high", 0); err != nil {
		t.Fatal(err)
	}
	if found, err := s.Verify(t.Context(), true); err != nil || len(found) != 1 {
		t.Fatalf("Verify = %v, %v, want one corrupt layer", found, err)
	}
	checkSecret(t, s, pull(t, s, reg.host+"/secret:v1"))
}

// TestEncryptedLayerOnOtherLayers: the tar of an encrypted layer is taken from the store if that has it on other
// layers.
func TestEncryptedLayerOnOtherLayers(t *testing.T) {
	t.Parallel()
	key, reg := newImageKey(t), newRegistry(t)
	reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
	high := layerOf(t, tree{"etc/high": "high"}, compression.GZip)
	reg.push(t, "other:v1", imageOf(t, nil, high))
	s := open(t, withKeys(t, config(t, reg.host), map[string]string{"key": key.private}))
	pull(t, s, reg.host+"/other:v1")
	checkSecret(t, s, pull(t, s, reg.host+"/secret:v1"))
}

// TestEncryptedLoad: an archive with encrypted layers needs the keys too.
func TestEncryptedLoad(t *testing.T) {
	t.Parallel()
	key, reg := newImageKey(t), newRegistry(t)
	reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
	dir := filepath.Join(t.TempDir(), "layout")
	to, err := layout.NewReference(dir, "v1")
	if err != nil {
		t.Fatal(err)
	}
	copyImage(t, dockerReference(t, reg.host+"/secret:v1"), to, copy.Options{})
	cfg := withKeys(t, config(t, reg.host), map[string]string{"key": key.private})
	s := open(t, cfg)
	loaded, err := s.LoadFile(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	checkSecret(t, s, loaded[0])

	none := open(t, config(t, reg.host))
	if _, err := none.LoadFile(t.Context(), dir); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("LoadFile without keys = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
	checkEmpty(t, none)
}

// TestEncryptedImagesRefused: without the right key, and of an image that was changed after its encryption, nothing is
// stored, whatever its annotations say. Of the changed images, the manifest has the digests of the changed blobs.
func TestEncryptedImagesRefused(t *testing.T) {
	t.Parallel()
	key, other := newImageKey(t), newImageKey(t)
	right := map[string]string{"key": key.private}
	annotate := func(name, value string) func(*v1.Manifest, []byte) []byte {
		return func(m *v1.Manifest, blob []byte) []byte {
			m.Layers[0].Annotations[name] = value
			return blob
		}
	}
	for name, c := range map[string]struct {
		keys   map[string]string
		change func(*v1.Manifest, []byte) []byte
		is     func(error) bool
		want   string
	}{
		"wrong key": {map[string]string{"key": other.private}, nil, errdefs.IsFailedPrecondition,
			"none of the 1 private keys in"},
		"no key":       {map[string]string{"x": "not a key"}, nil, errdefs.IsFailedPrecondition, "(decryption_keys_path)"},
		"no directory": {nil, nil, errdefs.IsFailedPrecondition, "read decryption_keys_path"},
		"no setting":   {nil, nil, errdefs.IsFailedPrecondition, "decryption_keys_path is not set"},
		"changed": {right, func(_ *v1.Manifest, blob []byte) []byte {
			blob[len(blob)/2] ^= 1
			return blob
		}, nil, "is not intact"},
		"cut":          {right, func(_ *v1.Manifest, blob []byte) []byte { return blob[:len(blob)-1] }, nil, "is not intact"},
		"long":         {right, func(_ *v1.Manifest, blob []byte) []byte { return append(blob, 0) }, nil, "is not intact"},
		"another HMAC": {right, annotate(pubOptsKey, publicOptions(t, "")), nil, "is not intact"},
		"a short nonce": {right, annotate(pubOptsKey, publicOptions(t, "short")), nil,
			"annotations of the encrypted layer are malformed"},
		"another nonce": {right, func(m *v1.Manifest, blob []byte) []byte {
			var options blockcipher.PublicLayerBlockCipherOptions
			raw, err := base64.StdEncoding.DecodeString(m.Layers[0].Annotations[pubOptsKey])
			if err == nil {
				err = json.Unmarshal(raw, &options)
			}
			if err != nil {
				t.Error(err)
			}
			options.CipherOptions = map[string][]byte{"nonce": make([]byte, 16)}
			m.Layers[0].Annotations[pubOptsKey] = encoded(t, options)
			return blob
		}, nil, "unpacking blob"},
		"no HMAC":      {right, annotate(pubOptsKey, ""), nil, "no cipher type provided"},
		"not base64":   {right, annotate(jweKey, "%"), errdefs.IsFailedPrecondition, "could not base64 decode"},
		"not JSON":     {right, annotate(pubOptsKey, "e30K!"), nil, "illegal base64"},
		"deep JSON":    {right, annotate(jweKey, deep("[")), errdefs.IsFailedPrecondition, "ParseEncrypted failed"},
		"deep options": {right, annotate(pubOptsKey, deep(`{"a":`)), nil, "exceeded max depth"},
		"too much": {right, annotate(jweKey, strings.Repeat("A", 1<<20)), errdefs.IsInvalidArgument,
			"more than 1048576"},
		"many keys": {right, annotate(jweKey, strings.Repeat(",", 2000)), errdefs.IsInvalidArgument,
			"more than 100 keys"},
		"many recipients": {right, annotate(jweKey, manyRecipients()), errdefs.IsFailedPrecondition, "decryption_keys_path"},
		"deep BER": {map[string]string{"key": key.private, "x": key.certificate}, func(m *v1.Manifest, blob []byte) []byte {
			m.Layers[0].Annotations = map[string]string{pkcs7Key: deep("\x30\x80")}
			return blob
		}, errdefs.IsFailedPrecondition, "decryption_keys_path"},
		"no wrapped key": {right, annotate(jweKey, ""), errdefs.IsFailedPrecondition, "decryption_keys_path"},
		"key provider": {right, func(m *v1.Manifest, blob []byte) []byte {
			m.Layers[0].Annotations = map[string]string{"org.opencontainers.image.enc.keys.provider.x": "YQ=="}
			return blob
		}, errdefs.IsFailedPrecondition, "decryption_keys_path"},
		"not encrypted": {right, func(m *v1.Manifest, blob []byte) []byte {
			m.Layers[0].MediaType = "application/vnd.oci.image.layer.v1.tar+gzip"
			return blob
		}, nil, "unpacking blob"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.encrypt(t, secretImage(t, compression.GZip), forKeys(t, key))
			if c.change != nil {
				reg.push(t, "secret:v1", changedLayer(t, reg.remote(t, "secret:v1"), c.change))
			}
			cfg := withKeys(t, config(t, reg.host), c.keys)
			switch name {
			case "no directory":
				cfg.DecryptionKeysPath = filepath.Join(cfg.Root, "missing")
			case "no setting":
				cfg.DecryptionKeysPath = ""
			}
			reg.forget()
			s := open(t, cfg)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/secret:v1"})
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !c.is(err) {
				t.Errorf("Pull = %v, want an error of the right kind with %q", err, c.want)
			}
			if n := reg.count("GET /v2/secret/blobs/"); c.is != nil && n > 1 {
				t.Errorf("%d requests for blobs, want one, for the config", n)
			}
			checkEmpty(t, s)
			checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
			if left, _ := filepath.Glob(filepath.Join(cfg.Root, "overlay/*/diff")); len(left) != 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// publicOptions are public options of a layer with a wrong HMAC, and a nonce unless that is empty.
func publicOptions(t *testing.T, nonce string) string {
	t.Helper()
	options := blockcipher.PublicLayerBlockCipherOptions{
		CipherType: blockcipher.AES256CTR, Hmac: make([]byte, 32), CipherOptions: map[string][]byte{},
	}
	if nonce != "" {
		options.CipherOptions["nonce"] = []byte(nonce)
	}
	return encoded(t, options)
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// manyRecipients is a wrapped key whose recipients have other keys.
func manyRecipients() string {
	one := `{"header":{"alg":"RSA-OAEP"},"encrypted_key":"` + strings.Repeat("A", 342) + `"},`
	return base64.StdEncoding.EncodeToString([]byte(`{"protected":"eyJlbmMiOiJBMjU2R0NNIn0","iv":"AAAA",` +
		`"ciphertext":"AAAA","tag":"AAAA","recipients":[` + strings.TrimSuffix(strings.Repeat(one, 1800), ",") + `]}`))
}

func deep(part string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(part, 100_000)))
}

// changedLayer changes the manifest of an image, and the content of its lowest layer.
func changedLayer(t *testing.T, of v1.Image, change func(*v1.Manifest, []byte) []byte) v1.Image {
	t.Helper()
	m, err := of.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := of.Layers()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := of.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	o := odd{manifest: *m.DeepCopy(), config: raw}
	content := change(&o.manifest, []byte(readAll(t)(layers[0].Compressed())))
	lowest := static.NewLayer(content, o.manifest.Layers[0].MediaType)
	o.layers = append([]v1.Layer{lowest}, layers[1:]...)
	if o.manifest.Layers[0].Digest, o.manifest.Layers[0].Size, err = v1.SHA256(bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	img, err := partial.CompressedToImage(o)
	if err != nil {
		t.Fatal(err)
	}
	return img
}
