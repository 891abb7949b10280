package image_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/podd-project/podd/image"
)

func TestPullByTag(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := craft(t, func(c *v1.ConfigFile) {
		c.Config.User, c.Config.Cmd, c.Config.WorkingDir = "7:8", []string{"/bin/app"}, "/work"
		c.Config.Labels = map[string]string{"a": "b"}
	}, tree{"bin/": "", "bin/app": "one"}, tree{"more": "two"})
	digest := reg.push(t, "team/app:v1", img)
	s := open(t, config(t, reg.host))

	got := pull(t, s, reg.host+"/team/app:v1")
	if want := imageID(t, img); got.ID != want {
		t.Errorf("id %s, want the config's digest %s", got.ID, want)
	}
	checkNames(t, got, []string{reg.host + "/team/app:v1"}, []string{reg.host + "/team/app@" + digest})
	if got.Config.User != "7:8" || got.Config.Labels["a"] != "b" || got.Config.WorkingDir != "/work" {
		t.Errorf("config = %+v, want user 7:8, label a=b, directory /work", got.Config)
	}
	if got.Created.Unix() != 1.5e9 {
		t.Errorf("created = %v, want Unix time 1.5e9", got.Created)
	}
	if want := uncompressed(t, img); got.Size != want {
		t.Errorf("size %d, want %d", got.Size, want)
	}
	for _, ref := range []string{
		reg.host + "/team/app:v1", reg.host + "/team/app@" + digest, reg.host + "/team/app:v9@" + digest, got.ID,
		"sha256:" + got.ID, got.ID[:10],
	} {
		if found, err := s.Resolve(t.Context(), ref); err != nil || found != got {
			t.Errorf("Resolve(%q) = %v, %v, want %v", ref, found, err, got)
		}
	}
	if again := pull(t, s, reg.host+"/team/app:v1"); again != got {
		t.Error("pulling again changed the published image")
	}
	if n := reg.count("GET /v2/team/app/blobs/" + layerDigest(t, img, 0)); n != 1 {
		t.Errorf("layer was fetched %d times, want once", n)
	}
	if n := reg.count("GET /v2/team/app/blobs/sha256:" + got.ID); n != 1 {
		t.Errorf("config was fetched %d times, want once", n)
	}
}

// uncompressed returns the size of an image's layers as tar files.
func uncompressed(t *testing.T, img v1.Image) uint64 {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var total uint64
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			t.Fatal(err)
		}
		total += uint64(n)
	}
	return total
}

func layerDigest(t *testing.T, img v1.Image, i int) string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	return digestOf(t, layers[i])
}

func checkNames(t *testing.T, img *image.Image, tags, digests []string) {
	t.Helper()
	if !slices.Equal(img.Tags, tags) {
		t.Errorf("tags %q, want %q", img.Tags, tags)
	}
	if !slices.Equal(img.Digests, digests) {
		t.Errorf("digests %q, want %q", img.Digests, digests)
	}
}

func TestPullByDigestHasNoTag(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	digest := reg.push(t, "app:v1", simple(t, "x"))
	s := open(t, config(t, reg.host))
	got := pull(t, s, reg.host+"/app@"+digest)
	checkNames(t, got, nil, []string{reg.host + "/app@" + digest})
	// The tag of a reference with a digest is ignored.
	got = pull(t, s, reg.host+"/app:other@"+digest)
	checkNames(t, got, nil, []string{reg.host + "/app@" + digest})
}

func TestPullWithoutTagIsLatest(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:latest", simple(t, "x"))
	s := open(t, config(t, reg.host))
	got := pull(t, s, reg.host+"/app")
	if want := []string{reg.host + "/app:latest"}; !slices.Equal(got.Tags, want) {
		t.Errorf("tags %q, want %q", got.Tags, want)
	}
	if _, err := s.Resolve(t.Context(), reg.host+"/app"); err != nil {
		t.Error(err)
	}
}

func TestTagsOfOneImage(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	img := simple(t, "x")
	digest := reg.push(t, "app:a", img)
	reg.push(t, "app:b", img)
	reg.push(t, "other:c", img)
	s := open(t, config(t, reg.host))
	for _, ref := range []string{"/app:b", "/app:a", "/other:c"} {
		pull(t, s, reg.host+ref)
	}
	list, err := s.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %d images, %v, want 1", len(list), err)
	}
	checkNames(t, list[0], []string{reg.host + "/app:a", reg.host + "/app:b", reg.host + "/other:c"},
		[]string{reg.host + "/app@" + digest, reg.host + "/other@" + digest})
}

func TestTagMoves(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	oldDigest := reg.push(t, "app:latest", simple(t, "old"))
	s := open(t, config(t, reg.host))
	before := pull(t, s, reg.host+"/app")
	newDigest := reg.push(t, "app:latest", simple(t, "new"))
	after := pull(t, s, reg.host+"/app")
	if after.ID == before.ID {
		t.Fatal("the old image was kept under the tag")
	}
	checkNames(t, after, []string{reg.host + "/app:latest"}, []string{reg.host + "/app@" + newDigest})
	stale, err := s.Resolve(t.Context(), before.ID)
	if err != nil {
		t.Fatal(err)
	}
	checkNames(t, stale, nil, []string{reg.host + "/app@" + oldDigest})
	// A published image does not change.
	checkNames(t, before, []string{reg.host + "/app:latest"}, []string{reg.host + "/app@" + oldDigest})
}

// index is a manifest list with an image for each platform.
func index(images map[string]v1.Image) v1.ImageIndex {
	list := v1.ImageIndex(empty.Index)
	for platform, img := range images {
		os, arch, _ := strings.Cut(platform, "/")
		list = mutate.AppendManifests(list, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: os, Architecture: arch}},
		})
	}
	return list
}

func TestPullOfManifestList(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	mine := simple(t, "mine")
	digest := reg.push(t, "multi:v1", index(map[string]v1.Image{
		"linux/amd64": mine, "linux/arm64": craft(t, arch("arm64"), tree{"x": "other"}),
	}))
	s := open(t, config(t, reg.host))
	got := pull(t, s, reg.host+"/multi:v1")
	if got.ID != imageID(t, mine) {
		t.Errorf("image = %s, want this platform's, %s", got.ID, imageID(t, mine))
	}
	checkNames(t, got, []string{reg.host + "/multi:v1"}, []string{reg.host + "/multi@" + digest})
	// The digest of the list's manifest resolves to the same image.
	if found, err := s.Resolve(t.Context(), reg.host+"/multi@"+digestOf(t, mine)); err != nil || found.ID != got.ID {
		t.Errorf("Resolve by the instance's digest = %v, %v, want %s", found, err, got.ID)
	}
	if n := reg.count("GET /v2/multi/manifests/"); n != 2 {
		t.Errorf("%d requests for manifests, want the list and one image: registries count them", n)
	}
	if byDigest := pull(t, s, reg.host+"/multi@"+digest); byDigest.ID != got.ID {
		t.Errorf("pull by digest of the list = %s, want %s", byDigest.ID, got.ID)
	}
}

func TestPullForOtherPlatform(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	foreign := craft(t, arch("riscv64"), tree{"x": "foreign"})
	reg.push(t, "single:v1", foreign)
	reg.push(t, "list:v1", index(map[string]v1.Image{"linux/arm64": simple(t, "a"), "windows/amd64": simple(t, "b")}))
	reg.push(t, "liar:v1", index(map[string]v1.Image{"linux/amd64": foreign}))
	reg.push(t, "compatible:v1", craft(t, arch("386"), tree{"x": "32 bit"}))
	s := open(t, config(t, reg.host))
	for ref, available := range map[string]string{
		"single:v1": "linux/riscv64", "list:v1": "linux/arm64", "liar:v1": "linux/riscv64",
	} {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/" + ref})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: %v, want invalid argument", ref, err)
			continue
		}
		for _, part := range []string{available, "linux/amd64"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q, want it with %q", ref, err, part)
			}
		}
	}
	if n := reg.count("GET /v2/single/blobs/" + layerDigest(t, foreign, 0)); n != 0 {
		t.Error("a layer of an image for another platform was fetched")
	}
	checkEmpty(t, s)
	pull(t, s, reg.host+"/compatible:v1")
}

// checkEmpty fails the test if the store lists an image.
func checkEmpty(t *testing.T, s *image.Store) {
	t.Helper()
	list, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range list {
		t.Errorf("image %s is left: %q %q", img.ID, img.Tags, img.Digests)
	}
}

func TestPullErrors(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	dead := newRegistry(t)
	dead.server.Close()
	broken := newRegistry(t)
	broken.setGuard(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	s := open(t, config(t, reg.host, dead.host, broken.host))
	for ref, is := range map[string]func(error) bool{
		reg.host + "/app:v2":                                errdefs.IsNotFound,
		reg.host + "/nothing:v1":                            errdefs.IsNotFound,
		reg.host + "/app@sha256:" + strings.Repeat("0", 64): errdefs.IsNotFound,
		reg.host + "/app@sha256:short":                      errdefs.IsInvalidArgument,
		"":                                                  errdefs.IsInvalidArgument,
		"Upper/Case":                                        errdefs.IsInvalidArgument,
		reg.host + "/a b":                                   errdefs.IsInvalidArgument,
		"https://" + reg.host + "/app":                      errdefs.IsInvalidArgument,
		strings.Repeat("0", 64):                             errdefs.IsInvalidArgument,
		reg.host + "/app:" + strings.Repeat("v", 4000): errdefs.IsInvalidArgument,
		dead.host + "/app:v1":                          isUnavailable,
		broken.host + "/app:v1":                        isUnavailable,
	} {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: ref})
		if !is(err) {
			t.Errorf("pull of %.80q = %v, want another error", ref, err)
		}
	}
	checkEmpty(t, s)
}

// TestStoreOnTwoFilesystems: layers are moved into the store, so a filesystem at a part of it makes pulls fail. The
// error is not the registry's, and says what to do.
func TestStoreOnTwoFilesystems(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	mountTmpfs(t, filepath.Join(cfg.Root, "overlay"), "")
	s := open(t, cfg)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if want := "must be on one filesystem"; !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want a failed precondition with %q", err, want)
	}
}

func TestBlockedRegistry(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	cfg := config(t)
	writeFile(t, cfg.RegistriesConf, "[[registry]]\nlocation = \""+reg.host+"\"\nblocked = true\n")
	s := open(t, cfg)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app"}); !errdefs.IsPermissionDenied(err) {
		t.Errorf("error %v, want permission denied", err)
	}
}

func TestShortNames(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "found:v1", simple(t, "found"))
	reg.push(t, "elsewhere/thing:v1", simple(t, "aliased"))
	reg.push(t, "library/hub:v1", simple(t, "hub"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	insecure := "[[registry]]\nlocation = \"" + reg.host + "\"\ninsecure = true\n"

	// No configuration of short names: docker.io.
	writeFile(t, cfg.RegistriesConf,
		insecure+"[[registry]]\nprefix = \"docker.io\"\nlocation = \""+reg.host+"\"\ninsecure = true\n")
	if got := pull(t, s, "hub:v1"); !slices.Equal(got.Tags, []string{"docker.io/library/hub:v1"}) {
		t.Errorf("tags = %q, want docker.io/library/hub:v1", got.Tags)
	}
	if _, err := s.Resolve(t.Context(), "hub:v1"); err != nil {
		t.Error(err)
	}
	// An alias, and registries to search; the file is read again without a restart.
	writeFile(t, cfg.RegistriesConf, "unqualified-search-registries = [\""+reg.host+"\"]\n"+insecure+
		"[aliases]\nthing = \""+reg.host+"/elsewhere/thing\"\n")
	for short, full := range map[string]string{"found:v1": "/found:v1", "thing:v1": "/elsewhere/thing:v1"} {
		if got := pull(t, s, short); !slices.Equal(got.Tags, []string{reg.host + full}) {
			t.Errorf("tags of %s = %q, want %q", short, got.Tags, reg.host+full)
		}
		if got, err := s.Resolve(t.Context(), short); err != nil || got.Tags[0] != reg.host+full {
			t.Errorf("Resolve(%q) = %v, %v, want tag %q", short, got, err, reg.host+full)
		}
	}
}

// TestShortNameMode: with the mode "enforcing", a short name that may mean several images is refused; the modes
// "permissive" and "disabled" try them in turn.
func TestShortNameMode(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "found:v1", simple(t, "found"))
	reg.push(t, "elsewhere/thing:v1", simple(t, "aliased"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	configure := func(mode, registries string) {
		writeFile(t, cfg.RegistriesConf, "short-name-mode = \""+mode+"\"\nunqualified-search-registries = ["+registries+"]\n"+
			"[[registry]]\nlocation = \""+reg.host+"\"\ninsecure = true\n[aliases]\nthing = \""+reg.host+"/elsewhere/thing\"\n")
	}
	one := `"` + reg.host + `"`
	two := one + `, "` + strings.Replace(reg.host, "127.0.0.1", "localhost", 1) + `"`
	configure("enforcing", two)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: "found:v1"})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "short-name-mode") {
		t.Errorf("error %v, want an invalid argument that names short-name-mode", err)
	}
	pull(t, s, "thing:v1") // by its alias
	for _, c := range [][2]string{{"enforcing", one}, {"permissive", two}, {"disabled", two}} {
		configure(c[0], c[1])
		pull(t, s, "found:v1")
	}
}

func TestMirrorFailsOver(t *testing.T) {
	t.Parallel()
	mirror, origin := newRegistry(t), newRegistry(t)
	mirror.push(t, "cache/both:v1", simple(t, "both"))
	origin.push(t, "both:v1", simple(t, "both"))
	origin.push(t, "only:v1", simple(t, "only"))
	cfg := config(t)
	writeFile(t, cfg.RegistriesConf, `
[[registry]]
location = "`+origin.host+`"
insecure = true
[[registry.mirror]]
location = "`+mirror.host+`/cache"
insecure = true
`)
	s := open(t, cfg)
	got := pull(t, s, origin.host+"/both:v1")
	if !slices.Equal(got.Tags, []string{origin.host + "/both:v1"}) || origin.count("GET /v2/both") != 0 {
		t.Errorf("tags %q, %d requests to the origin, want the origin's tag and no request", got.Tags,
			origin.count("GET /v2/both"))
	}
	pull(t, s, origin.host+"/only:v1")
	mirror.server.Close()
	pull(t, s, origin.host+"/both:v1")
}

func TestSignaturePolicy(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	writeFile(t, cfg.Policy, `{"default":[{"type":"reject"}]}`)
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if !isSignature(err) {
		t.Errorf("error %v, want a rejected signature", err)
	}
	writeFile(t, cfg.Policy, `{"default":[{"type":"signedBy","keyType":"GPGKeys","keyPath":"/nonexistent"}]}`)
	if _, err = s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil {
		t.Error("an unsigned image was pulled")
	}
	writeFile(t, cfg.Policy, `not json`)
	if _, err = s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil {
		t.Error("a broken policy let an image in")
	}
	checkEmpty(t, s)
	if err := os.Remove(cfg.Policy); err != nil {
		t.Fatal(err)
	}
	pull(t, s, reg.host+"/app:v1")
}

func TestPullLeavesNoTemporaryFiles(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.push(t, "app:v1", simple(t, "x"))
	cfg := config(t, reg.host)
	s := open(t, cfg)
	pull(t, s, reg.host+"/app:v1")
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v2"}); err == nil {
		t.Fatal("pulled what is not there")
	}
	checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
}

func checkNoFiles(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left in %s: %s", dir, e.Name())
	}
}

// TestPullOfPresentImage: a pull of what the store has asks for the manifest's digest, in the daemon, and starts no
// process. It fetches the manifest, which registries count as a pull, only if they do not tell the digest.
func TestPullOfPresentImage(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	first := simple(t, "first")
	reg.push(t, "app:v1", first)
	cfg := config(t, reg.host)
	s := open(t, cfg)
	ref := reg.host + "/app:v1"
	want := pull(t, s, ref)
	requests := func(manifests, blobs int) {
		t.Helper()
		if m, b := reg.count("GET /v2/app/manifests/"), reg.count("GET /v2/app/blobs/"); m != manifests || b != blobs {
			t.Errorf("%d manifests and %d blobs were fetched, want %d and %d", m, b, manifests, blobs)
		}
		if n := reg.count("HEAD /v2/app/manifests/v1"); n != 1 {
			t.Errorf("%d requests for the digest, want 1", n)
		}
		reg.forget()
	}
	reg.forget()
	if got := pull(t, s, ref); got.ID != want.ID {
		t.Errorf("image %s, want %s", got.ID, want.ID)
	}
	requests(0, 0)
	for _, status := range []int{
		http.StatusForbidden, // as of a store of objects to which it redirects
		http.StatusOK,        // without the digest
	} {
		reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				w.WriteHeader(status)
			}
			return r.Method == http.MethodHead
		})
		pull(t, s, ref)
		reg.setGuard(nil)
		requests(1, 0)
	}
	writeFile(t, cfg.Policy, `{"default":[{"type":"reject"}]}`)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: ref}); !isSignature(err) {
		t.Errorf("error %v of a present image, want a rejected signature", err)
	}
	if err := os.Remove(cfg.Policy); err != nil {
		t.Fatal(err)
	}
	// The tag moves away and back: the old image gets it again, without a process.
	reg.push(t, "app:v1", simple(t, "second"))
	reg.forget()
	if got := pull(t, s, ref); got.ID == want.ID {
		t.Error("the moved tag is still the old image")
	}
	requests(1, 2)
	reg.push(t, "app:v1", first)
	reg.forget()
	if got := pull(t, s, ref); got.ID != want.ID || !slices.Equal(got.Tags, []string{ref}) {
		t.Errorf("image %s %q, want %s with the tag", got.ID, got.Tags, want.ID)
	}
	requests(0, 0)
}
