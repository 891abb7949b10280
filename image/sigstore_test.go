package image_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/signature"
	containerssigner "go.podman.io/image/v5/signature/signer"
	"go.podman.io/image/v5/signature/sigstore"
	"go.podman.io/image/v5/types"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// sigstoreKey is a pair of keys, as `cosign generate-key-pair` makes it. Without the private one it cannot sign.
type sigstoreKey struct {
	private *containerssigner.Signer
	public  string // a file
}

// newPublicKey makes a public key; its private key is not kept.
func newPublicKey(t *testing.T) sigstoreKey {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&pair.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := filepath.Join(t.TempDir(), "public", "key.pub")
	writeFile(t, public, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	return sigstoreKey{public: public}
}

// newSigstoreKey makes a key. To encrypt and decrypt it takes a second, more with the race detector.
func newSigstoreKey(t *testing.T) sigstoreKey {
	t.Helper()
	passphrase := []byte("of the test")
	pair, err := sigstore.GenerateKeyPair(passphrase)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	private, public := filepath.Join(dir, "key"), filepath.Join(dir, "public", "key.pub")
	writeFile(t, private, string(pair.PrivateKey))
	writeFile(t, public, string(pair.PublicKey))
	signer, err := sigstore.NewSigner(sigstore.WithPrivateKeyFile(private, passphrase))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { signer.Close() })
	return sigstoreKey{signer, public}
}

// policy returns a policy that wants images signed by the key.
func (k sigstoreKey) policy() string {
	return fmt.Sprintf(`{"default":[{"type":"sigstoreSigned","keyPath":%q,"signedIdentity":{"type":"matchRepository"}}]}`,
		k.public)
}

// sign signs an image in its registry, or a list with all its images, as
// `skopeo copy --all --sign-by-sigstore-private-key` does: the signature is an image in the same repository.
func (k sigstoreKey) sign(t *testing.T, ref string) {
	t.Helper()
	policy, err := signature.NewPolicyContext(&signature.Policy{
		Default: signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		t.Fatal(err)
	}
	named, err := docker.ParseReference("//" + ref)
	if err != nil {
		t.Fatal(err)
	}
	sys := &types.SystemContext{DockerInsecureSkipTLSVerify: types.OptionalBoolTrue}
	_, err = copy.Image(t.Context(), policy, named, named, &copy.Options{
		SourceCtx: sys, DestinationCtx: sys, PreserveDigests: true, Signers: []*containerssigner.Signer{k.private},
		ImageListSelection: copy.CopyAllImages,
	})
	if err != nil {
		t.Fatalf("sign %s: %v", ref, err)
	}
}

// sigstoreRole is set in the process that does the work of TestSigstore: containers-registries.d(5) is one directory of
// the machine, so the process has a mount namespace of its own, where it is empty.
const sigstoreRole = "PODD_TEST_SIGSTORE"

// TestSigstore: images that a policy wants signed with a key of sigstore, by default and for one namespace.
func TestSigstore(t *testing.T) {
	const containersDir, registriesDir = "/etc/containers", "/etc/containers/registries.d"
	if os.Getenv(sigstoreRole) == "" {
		if err := os.Mkdir(containersDir, 0o755); err == nil {
			t.Cleanup(func() { _ = os.Remove(containersDir) }) // it stays if somebody has put a file there
		}
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestSigstore$", "-test.v")
		cmd.Env = append(os.Environ(), sigstoreRole+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSigstore") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("tmpfs", containersDir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	writeFile(t, registriesDir+"/default.yaml", "default-docker:\n  use-sigstore-attachments: true\n")
	key, other := newSigstoreKey(t), newPublicKey(t)
	t.Run("pull", func(t *testing.T) { testSigstorePull(t, key, other) })
	t.Run("namespace", func(t *testing.T) { testSigstoreNamespace(t, key, other) })
	t.Run("variant", func(t *testing.T) { testSigstoreVariant(t, key) })
	if err := os.Rename(registriesDir, containersDir+"/registries.rootful.d"); err != nil {
		t.Fatal(err)
	}
	t.Run("rootful", func(t *testing.T) { testSigstorePull(t, key, other) })
	t.Run("missing key", func(t *testing.T) { testSigstoreMissingKey(t, key) })
}

func testSigstorePull(t *testing.T, key, other sigstoreKey) {
	reg := newRegistry(t)
	cfg := config(t, reg.host)
	s := open(t, cfg)
	reg.push(t, "unsigned:v1", simple(t, "unsigned"))
	reg.push(t, "signed:v1", simple(t, "signed"))
	key.sign(t, reg.host+"/signed:v1")
	for name, wanted := range map[string]sigstoreKey{"unsigned": key, "signed": other} {
		writeFile(t, cfg.Policy, wanted.policy())
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/" + name + ":v1"})
		if !isSignature(err) {
			t.Errorf("Pull() of %s, not signed by the wanted key = %v, want an invalid signature", name, err)
		}
	}
	checkEmpty(t, s)
	writeFile(t, cfg.Policy, key.policy())
	pull(t, s, reg.host+"/signed:v1")
}

func testSigstoreNamespace(t *testing.T, key, other sigstoreKey) {
	n := newTeamNode(t)
	writeFile(t, n.policy(team), key.policy())
	ref := n.push(t, simple(t, "x"))
	id := n.mustPull(t, "others", ref)
	n.allow(t, team, id, false)
	key.sign(t, ref)
	err := n.Allow(t.Context(), id, team)
	if !isSignature(err) || !strings.Contains(err.Error(), "pull it again") {
		t.Errorf("Allow() of an image that was signed after its pull = %v, want an invalid signature that says so", err)
	}
	n.mustPull(t, team, ref)
	n.reg.server.Close() // the signatures were stored with the image
	n.allow(t, team, id, true)
	writeFile(t, n.policy(team), other.policy())
	n.allow(t, team, id, false)
}

// testSigstoreVariant: the signature of the image that annotations select counts, for the name of the list.
func testSigstoreVariant(t *testing.T, key sigstoreKey) {
	n := newTeamNode(t)
	writeFile(t, n.policy(team), strings.ReplaceAll(key.policy(), "matchRepository", "matchExact"))
	cuda := simple(t, "cuda")
	list := flavors(simple(t, "plain"), cuda, craft(t, arch("riscv64"), tree{"x": "foreign"}))
	for _, tag := range []string{"signed", "other"} {
		n.reg.push(t, "ml:"+tag, list)
	}
	key.sign(t, n.reg.host+"/ml:signed")
	request := image.PullRequest{Namespace: team, Annotations: map[string]string{flavorKey: "cuda"}}
	request.Ref = n.reg.host + "/ml:other"
	if _, err := n.Pull(t.Context(), request); !isSignature(err) || !strings.Contains(err.Error(), "annotations") {
		t.Errorf("Pull() of a variant that is signed for another tag = %v, want an invalid signature", err)
	}
	request.Ref = n.reg.host + "/ml:signed"
	img, err := n.Pull(t.Context(), request)
	if err != nil || img.ID != imageID(t, cuda) {
		t.Fatalf("Pull() of a signed variant = %v, %v, want image %s", img, err, imageID(t, cuda))
	}
	n.allow(t, team, img.ID, true)
}

func testSigstoreMissingKey(t *testing.T, key sigstoreKey) {
	reg := newRegistry(t)
	cfg := config(t, reg.host)
	writeFile(t, cfg.Policy, key.policy())
	s := open(t, cfg)
	reg.push(t, "app:v1", simple(t, "x"))
	key.sign(t, reg.host+"/app:v1")
	if err := os.Remove(key.public); err != nil {
		t.Fatal(err)
	}
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), key.public) {
		t.Errorf("Pull() without the key = %v, want a failed precondition that names %s", err, key.public)
	}
}
