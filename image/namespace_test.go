package image_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
)

// Policies of the tests; signedBy completes the second one.
const (
	acceptAll = `{"default":[{"type":"insecureAcceptAnything"}]}`
	rejectAll = `{"default":[{"type":"reject"}]}`
)

func signedBy(key string) string {
	return fmt.Sprintf(`{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":%q}]}`, key)
}

// team is a namespace with a policy of its own: images must be signed by its key.
const team = "team"

// teamNode is a store on a node where the namespace team has a policy of its own, and a registry.
type teamNode struct {
	*image.Store
	cfg        setup
	reg        *testRegistry
	key, other signer
}

func newTeamNode(t *testing.T) *teamNode {
	t.Helper()
	n := &teamNode{reg: newRegistry(t), key: newSigner(t), other: newSigner(t)}
	n.cfg = config(t, n.reg.host)
	n.cfg.VariantAnnotations = []string{flavorKey}
	n.cfg.PolicyDir, n.cfg.AuthDir = filepath.Join(t.TempDir(), "policies"), filepath.Join(t.TempDir(), "auth")
	public := filepath.Join(t.TempDir(), "keys", "team.gpg")
	writeFile(t, public, n.key.public(t))
	writeFile(t, n.policy(team), signedBy(public))
	n.Store = open(t, n.cfg)
	return n
}

// trustOther makes the policy of a namespace want images signed by the other key.
func (n *teamNode) trustOther(t *testing.T, namespace string) {
	t.Helper()
	public := filepath.Join(t.TempDir(), "keys", "other.gpg")
	writeFile(t, public, n.other.public(t))
	writeFile(t, n.policy(namespace), signedBy(public))
}

func (n *teamNode) policy(namespace string) string {
	return filepath.Join(n.cfg.PolicyDir, namespace+".json")
}

// push pushes an image as app:v1, signed by the given keys, and returns its name.
func (n *teamNode) push(t *testing.T, img v1.Image, keys ...signer) string {
	t.Helper()
	digest, ref := n.reg.push(t, "app:v1", img), n.reg.host+"/app:v1"
	n.sign(t, digest, keys...)
	return ref
}

// sign makes the registry serve signatures of a manifest as app:v1, by the given keys and no others.
func (n *teamNode) sign(t *testing.T, digest string, keys ...signer) {
	t.Helper()
	var signatures [][]byte
	for _, key := range keys {
		signatures = append(signatures, key.sign(t, n.reg.host+"/app:v1", digest))
	}
	serveSignatures(t, n.reg, digest, signatures...)
}

func (n *teamNode) pullFor(t *testing.T, namespace, ref string) (*image.Image, error) {
	t.Helper()
	return n.Pull(t.Context(), image.PullRequest{Ref: ref, Namespace: namespace})
}

// mustPull pulls ref for a namespace and returns the image's id.
func (n *teamNode) mustPull(t *testing.T, namespace, ref string) string {
	t.Helper()
	img, err := n.pullFor(t, namespace, ref)
	if err != nil {
		t.Fatalf("Pull(%s) for namespace %q: %v", ref, namespace, err)
	}
	return img.ID
}

// allow checks whether the pods of a namespace may use a stored image.
func (n *teamNode) allow(t *testing.T, namespace, id string, want bool) {
	t.Helper()
	err := n.Allow(t.Context(), id, namespace)
	if want && err != nil {
		t.Errorf("Allow(%q) = %v, want nil", namespace, err)
	}
	if !want && (!isSignature(err) || !strings.Contains(err.Error(), fmt.Sprintf("in namespace %q", namespace))) {
		t.Errorf("Allow(%q) = %v, want an invalid signature that names the namespace", namespace, err)
	}
}

// TestNamespacePolicy: what the pods of a namespace with a signature policy of its own may pull.
func TestNamespacePolicy(t *testing.T) {
	t.Parallel()
	n := newTeamNode(t)
	ref := n.push(t, simple(t, "x"))
	for _, c := range []struct {
		name      string
		namespace string
		keys      []signer
		want      bool
	}{
		{"no signature", team, nil, false},
		{"wrong key", team, []signer{n.other}, false},
		{"no signature, no policy of its own", "others", nil, true},
		{"no signature, no namespace", "", nil, true},
		{"present, no signature", team, nil, false},
		{"present, wrong key", team, []signer{n.other}, false},
		{"good signature", team, []signer{n.key}, true},
		{"good signature among others", team, []signer{n.other, n.key}, true},
		{"signature is gone", team, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.push(t, simple(t, "x"), c.keys...)
			_, err := n.pullFor(t, c.namespace, ref)
			if c.want && err != nil || !c.want && !isSignature(err) {
				t.Errorf("Pull() = %v, want success %t or an invalid signature", err, c.want)
			}
		})
	}
}

// TestNamespaceAllow: an image that one namespace has pulled is for others only if their policy accepts it.
func TestNamespaceAllow(t *testing.T) {
	t.Parallel()
	t.Run("unsigned", func(t *testing.T) {
		n := newTeamNode(t)
		id := n.mustPull(t, "others", n.push(t, simple(t, "x")))
		n.allow(t, "others", id, true)
		n.allow(t, "", id, true)
		n.allow(t, team, id, false)
	})
	t.Run("wrong key", func(t *testing.T) {
		n := newTeamNode(t)
		id := n.mustPull(t, "others", n.push(t, simple(t, "x"), n.other))
		n.allow(t, team, id, false)
	})
	t.Run("good signature", func(t *testing.T) {
		n := newTeamNode(t)
		id := n.mustPull(t, "others", n.push(t, simple(t, "x"), n.key))
		n.reg.server.Close() // the signature was stored with the image
		n.allow(t, team, id, true)
		writeFile(t, n.policy(team), rejectAll)
		n.allow(t, team, id, false)
	})
	t.Run("signed after it was stored", func(t *testing.T) {
		n := newTeamNode(t)
		ref := n.push(t, simple(t, "x"))
		id := n.mustPull(t, "others", ref)
		n.push(t, simple(t, "x"), n.key)
		n.allow(t, team, id, false)
		n.mustPull(t, team, ref)
		n.allow(t, team, id, true)
	})
	t.Run("image of a list whose tag was moved", func(t *testing.T) {
		n := newTeamNode(t)
		img := simple(t, "x")
		ref := n.reg.host + "/app:v1"
		other := craft(t, arch("s390x"), tree{"x": "y"})
		n.reg.push(t, "app:v1", index(map[string]v1.Image{"linux/amd64": img, "linux/s390x": other}))
		n.sign(t, digestOf(t, img), n.key)
		id := n.mustPull(t, "others", ref)
		n.allow(t, team, id, true)
		n.push(t, simple(t, "another"))
		n.mustPull(t, "others", ref)
		if tags := n.resolve(t, id).Tags; len(tags) > 0 {
			t.Fatalf("tags %q of the old image, want none", tags)
		}
		n.allow(t, team, id, true)
	})
	t.Run("pulled from other repositories", func(t *testing.T) {
		n := newTeamNode(t)
		n.trustOther(t, "rivals")
		img := simple(t, "x")
		id := n.mustPull(t, team, n.push(t, img, n.key))
		for i, keys := range [][]signer{{n.other}, nil} {
			for _, same := range []v1.Image{img, mutate.Annotations(img, map[string]string{"a": "b"}).(v1.Image)} {
				n.sign(t, n.reg.push(t, fmt.Sprintf("copy%d:v1", i), same), keys...)
				n.mustPull(t, "others", fmt.Sprintf("%s/copy%d:v1", n.reg.host, i))
				n.allow(t, team, id, true)
			}
		}
		n.allow(t, "rivals", id, false) // no policy has verified these
		if err := n.Remove(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		n.mustPull(t, "others", n.push(t, img))
		n.allow(t, team, id, false)
	})
	t.Run("manifest that the library refuses", func(t *testing.T) {
		n := newTeamNode(t)
		mixed := oddImage(t, ociImage(t), func(m *v1.Manifest, _ map[string]any) {
			m.Config.MediaType = types.DockerConfigJSON
		})
		id := n.mustPull(t, team, n.push(t, mixed, n.key))
		n.allow(t, team, id, true)
		n.reg.push(t, "app:v1", listOf(t, "linux/amd64", mixed))
		n.sign(t, digestOf(t, mixed), n.key)
		n.allow(t, team, n.mustPull(t, team, n.reg.host+"/app:v1"), true)
	})
	t.Run("signed by two", func(t *testing.T) {
		n := newTeamNode(t)
		n.trustOther(t, "rivals")
		img := simple(t, "x")
		n.mustPull(t, team, n.push(t, img, n.key))
		id := n.mustPull(t, "rivals", n.push(t, img, n.other))
		n.allow(t, team, id, true)
		n.allow(t, "rivals", id, true)
		n.sign(t, n.reg.push(t, "copy:v1", img))
		n.mustPull(t, "others", n.reg.host+"/copy:v1")
		n.allow(t, team, id, true)
		n.allow(t, "rivals", id, true)
	})
	t.Run("a namespace accepts what the node rejects", func(t *testing.T) {
		n := newTeamNode(t)
		writeFile(t, n.cfg.Policy, rejectAll)
		writeFile(t, n.policy("free"), acceptAll)
		ref := n.push(t, simple(t, "x"))
		if _, err := n.pullFor(t, "others", ref); !isSignature(err) {
			t.Errorf("Pull() for a namespace without a policy = %v, want an invalid signature", err)
		}
		id := n.mustPull(t, "free", ref)
		n.allow(t, "free", id, true)
		n.allow(t, "others", id, false)
		n.allow(t, "", id, false)
	})
	t.Run("no policy of any namespace", func(t *testing.T) {
		n := newTeamNode(t)
		id := n.mustPull(t, "others", n.push(t, simple(t, "x")))
		writeFile(t, n.cfg.Policy, rejectAll)
		if err := os.Remove(n.policy(team)); err != nil {
			t.Fatal(err)
		}
		n.allow(t, team, id, true) // the policy of the node is for pulls
	})
	t.Run("loaded", func(t *testing.T) {
		n := newTeamNode(t)
		img := simple(t, "x")
		path := filepath.Join(t.TempDir(), "docker.tar")
		writeDockerArchive(t, path, map[string]v1.Image{"registry.test/one:v1": img})
		if _, err := n.LoadFile(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		n.allow(t, team, imageID(t, img), true)
	})
	t.Run("absent", func(t *testing.T) {
		n := newTeamNode(t)
		if err := n.Allow(t.Context(), strings.Repeat("0", 64), team); !errdefs.IsNotFound(err) {
			t.Errorf("Allow() of an absent image = %v, want not found", err)
		}
	})
}

func (n *teamNode) resolve(t *testing.T, id string) *image.Image {
	t.Helper()
	img, err := n.Resolve(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestNamespacePolicyIsBroken: a policy that cannot be used lets nothing in, neither a pull nor a container, and the
// error names the file.
func TestNamespacePolicyIsBroken(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(path string) error{
		"no JSON":         func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
		"a dangling link": func(path string) error { return errors.Join(os.Remove(path), os.Symlink("nowhere", path)) },
		"a directory":     func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a missing key":   func(path string) error { return os.WriteFile(path, []byte(signedBy("/nowhere/key")), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newTeamNode(t)
			ref := n.push(t, simple(t, "x"), n.key)
			id := n.mustPull(t, "others", ref)
			if err := spoil(n.policy(team)); err != nil {
				t.Fatal(err)
			}
			_, err := n.pullFor(t, team, ref)
			allowed := n.Allow(t.Context(), id, team)
			for _, err := range []error{err, allowed} {
				if err == nil || !strings.Contains(err.Error(), n.policy(team)) && !strings.Contains(err.Error(), "/nowhere/key") {
					t.Errorf("error %v, want one that names the file", err)
				}
			}
			if problems := errors.Join(registry.Inspect(n.cfg.Config)...); problems == nil ||
				!strings.Contains(problems.Error(), n.policy(team)) {
				t.Errorf("Inspect() = %v, want one problem that names %s", problems, n.policy(team))
			}
			n.allow(t, "others", id, true)
			if _, err := n.pullFor(t, "a/"+team, ref); !errdefs.IsInvalidArgument(err) {
				t.Errorf("Pull() for a namespace with a slash = %v, want an invalid argument", err)
			}
		})
	}
}

// TestInspectNamespaces: files that no namespace would use are problems.
func TestInspectNamespaces(t *testing.T) {
	t.Parallel()
	n := newTeamNode(t)
	writeFile(t, n.cfg.AuthFile, "{}")
	writeFile(t, filepath.Join(n.cfg.AuthDir, team+".json"), "{}")
	if errs := registry.Inspect(n.cfg.Config); len(errs) > 0 {
		t.Errorf("Inspect() = %v, want none", errs)
	}
	writeFile(t, filepath.Join(n.cfg.PolicyDir, "Team.json"), acceptAll)
	writeFile(t, filepath.Join(n.cfg.AuthDir, team+".json.bak"), "{}")
	writeFile(t, filepath.Join(n.cfg.AuthDir, "broken.json"), "{")
	var texts []string
	for _, err := range registry.Inspect(n.cfg.Config) {
		texts = append(texts, err.Error())
	}
	for _, want := range []string{
		"Team.json is not named after a namespace", "team.json.bak is not named", "broken.json",
	} {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, want) }) {
			t.Errorf("Inspect() = %q, want %q", texts, want)
		}
	}
	if len(texts) != 3 {
		t.Errorf("Inspect() = %q, want 3 problems", texts)
	}
}

// TestNamespaceCredentials: the credentials of a namespace are for its own pulls. They do not hide an image once it is
// stored: the kubelet decides who may use it (EnsureSecretPulledImages), or the pull policy Always, with which the
// registry does.
func TestNamespaceCredentials(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	reg.setGuard(basicAuth)
	cfg := config(t, reg.host)
	cfg.AuthDir = t.TempDir()
	writeFile(t, filepath.Join(cfg.AuthDir, team+".json"),
		fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64Of(user+":"+password)))
	s := open(t, cfg)
	ref := reg.host + "/app:v1"
	pull := func(namespace string) (string, error) {
		img, err := s.Pull(t.Context(), image.PullRequest{Ref: ref, Namespace: namespace})
		if err != nil {
			return "", err
		}
		return img.ID, nil
	}
	refused := func(namespace string) {
		t.Helper()
		if _, err := pull(namespace); !errdefs.IsUnauthorized(err) {
			t.Errorf("Pull() for namespace %q = %v, want unauthorized", namespace, err)
		}
	}
	refused("others")
	refused("")
	id, err := pull(team)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Allow(t.Context(), id, "others"); err != nil {
		t.Errorf("Allow() for another namespace = %v, want nil: the kubelet decides", err)
	}
	refused("others") // as with the pull policy Always
	writeFile(t, cfg.AuthFile, fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, reg.host, base64Of(user+":"+password)))
	if _, err := pull("others"); err != nil {
		t.Errorf("Pull() with the credentials of the node = %v, want nil", err)
	}
	writeFile(t, filepath.Join(cfg.AuthDir, team+".json"), "{}")
	refused(team) // its file replaces the node's
}

// TestNamespacesAreNotJoined: pulls for namespaces with files of their own are pulls of their own; those for the others
// are one.
func TestNamespacesAreNotJoined(t *testing.T) {
	t.Parallel()
	n := newTeamNode(t)
	ref := n.push(t, simple(t, "x"))
	writeFile(t, filepath.Join(n.cfg.AuthDir, "rich.json"), "{}")
	_, release := hang(t, n.reg, "/v2/app/manifests/v1")
	asked := []string{"a", "b", team, "rich"}
	ended := make(chan error, len(asked))
	for _, namespace := range asked {
		go func() {
			_, err := n.pullFor(t, namespace, ref)
			ended <- err
		}()
	}
	eventually(t, "three pulls, one with two callers", func() bool {
		callers := map[int]int{}
		for _, p := range pullsOf(n.Store) {
			callers[p.Callers]++
		}
		return callers[1] == 2 && callers[2] == 1
	})
	release()
	failed := 0
	for range asked {
		if err := <-ended; err != nil {
			failed++
			if !isSignature(err) {
				t.Errorf("Pull() = %v, want an invalid signature or success", err)
			}
		}
	}
	if failed != 1 {
		t.Errorf("%d pulls failed, want that of %s only", failed, team)
	}
}
