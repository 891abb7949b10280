package image_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/podd-project/podd/image"
)

// flood responds with endless data.
func flood(w http.ResponseWriter, mime, begin string) {
	w.Header().Set("Content-Type", mime)
	if _, err := io.WriteString(w, begin); err != nil {
		return
	}
	chunk := []byte(strings.Repeat(" ", 1<<20))
	for range 1 << 10 { // a GiB, if anyone reads it
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

func TestHostileRegistry(t *testing.T) {
	t.Parallel()
	img := simple(t, "hello")
	const manifestType = "application/vnd.docker.distribution.manifest.v2+json"
	blob, config := "/blobs/"+layerDigest(t, img, 0), "/blobs/sha256:"+imageID(t, img)
	for name, c := range map[string]struct {
		part   string
		answer func(http.ResponseWriter)
		text   string
	}{
		"huge manifest": {"/manifests/", func(w http.ResponseWriter) { flood(w, manifestType, "{") }, "exceeded maximum"},
		"huge config":   {config, func(w http.ResponseWriter) { flood(w, "application/json", "{") }, "exceeded maximum"},
		"other layer":   {blob, func(w http.ResponseWriter) { fmt.Fprint(w, "something else") }, ""},
		"other config": {config, func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"os":"linux","architecture":"amd64"}`)
		}, ""},
		"no manifest": {"/manifests/", func(w http.ResponseWriter) { fmt.Fprint(w, "<html>login</html>") }, ""},
		"array manifest": {"/manifests/", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", manifestType)
			fmt.Fprint(w, "[]")
		}, ""},
		"bad digests": {"/manifests/", badDigests, ""},
		"redirect loop": {blob, func(w http.ResponseWriter) {
			w.Header().Set("Location", "?")
			w.WriteHeader(http.StatusFound)
		}, ""},
		"long error":    {"/manifests/", longError, ""},
		"negative size": {"/manifests/", negativeSize, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, c.part) {
					return false
				}
				c.answer(w)
				return true
			})
			cfg := settings(t, reg.host)
			s := open(t, cfg)
			_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("error %v, want one with %q", err, c.text)
			}
			if len(err.Error()) > 4096 {
				t.Errorf("error has %d bytes, want at most 4096", len(err.Error()))
			}
			checkEmpty(t, s)
			checkNoFiles(t, filepath.Join(cfg.Root, "tmp"))
			reg.setGuard(nil)
			pull(t, s, reg.host+"/app:v1") // nothing of it stuck
		})
	}
}

// settings is config, for functions in which a variable has that name.
func settings(t *testing.T, hosts ...string) setup { return config(t, hosts...) }

func badDigests(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	fmt.Fprint(w, `{"schemaVersion":2,
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:../../x","size":2},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"../../../etc/passwd","size":2}]}`)
}

func negativeSize(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
	zeros := strings.Repeat("0", 64)
	fmt.Fprintf(w, `{"schemaVersion":2,
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":-5},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"sha256:%s",
		"size":-9223372036854775808}]}`, zeros, zeros)
}

func longError(w http.ResponseWriter) {
	refuse(w, http.StatusBadRequest, strings.Repeat("x", 1<<20))
}

// TestHostileLayers: a layer cannot write outside of its directory.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	victim := t.TempDir()
	target := filepath.Join(victim, "target")
	writeFile(t, target, "untouched")
	for name, layers := range map[string][]tree{
		"dots":            {{"../../../../../../../.." + target: "owned"}},
		"absolute":        {{target: "owned"}},
		"symlink":         {{"out": "-> " + victim, "out/target": "owned"}},
		"earlier symlink": {{"out": "-> " + victim}, {"out/target": "owned"}},
		"whiteout":        {{"out": "-> " + victim}, {"out/.wh.target": ""}},
		"opaque":          {{"out": "-> " + victim}, {"out/.wh..wh..opq": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t)
			reg.push(t, "evil:v1", craft(t, nil, layers...))
			s := open(t, config(t, reg.host))
			if img, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/evil:v1"}); err == nil {
				if _, err := s.Rootfs(t.Context(), image.RootfsRequest{ContainerID: "c", ImageID: img.ID}); err != nil {
					t.Error(err)
				}
			}
			if got, err := os.ReadFile(target); err != nil || string(got) != "untouched" {
				t.Errorf("file outside of the layer = %q, %v, want %q", got, err, "untouched")
			}
		})
	}
}

// TestHostileConfig: a config is stored as it is, and refused if it is invalid.
func TestHostileConfig(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	odd := craft(t, func(c *v1.ConfigFile) {
		c.Config.User = strings.Repeat("9", 100)
		c.Config.Env = []string{"no-equals-sign", "=", "A=\x00\xff"}
		c.Config.Volumes = map[string]struct{}{"../../etc": {}}
		c.Config.WorkingDir = "../.."
	}, tree{"x": ""})
	reg.push(t, "odd:v1", odd)
	s := open(t, config(t, reg.host))
	got := pull(t, s, reg.host+"/odd:v1")
	if got.Config.WorkingDir != "../.." {
		t.Errorf("config = %+v, want the working directory %q", got.Config, "../..")
	}
	wrongDiff := craft(t, func(c *v1.ConfigFile) {
		c.RootFS.DiffIDs = []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
	}, tree{"x": "y"})
	reg.push(t, "diff:v1", wrongDiff)
	if _, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/diff:v1"}); err == nil {
		t.Error("an image whose layers are not those of its config was stored")
	}
}

// TestConfigOverLimits: an image whose configuration is too large is refused before a layer is fetched, or when it is
// known which image of a list was chosen; nothing of it stays.
func TestConfigOverLimits(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	large := craft(t, func(c *v1.ConfigFile) { c.Config.User = strings.Repeat("u", 1<<20) }, tree{"x": ""})
	reg.push(t, "single:v1", large)
	reg.push(t, "list:v1", mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: large, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}},
	}))
	s := open(t, config(t, reg.host))
	for _, ref := range []string{"/single:v1", "/list:v1"} {
		_, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + ref})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "the user has 1048576 bytes") {
			t.Errorf("pull %s: %v, want an invalid argument that names the bytes of the user", ref, err)
		}
		checkEmpty(t, s)
	}
	if n := reg.count("GET /v2/single/blobs/" + layerDigest(t, large, 0)); n > 0 {
		t.Errorf("the layer of a refused image was fetched %d times, want 0", n)
	}
}

// TestAnotherDigest: a registry that answers for a digest with another image, which the store has too, gets an error,
// and the name stays that of its image.
func TestAnotherDigest(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	one, two := simple(t, "one"), simple(t, "two")
	reg.push(t, "app:v1", one)
	reg.push(t, "app:v2", two)
	s := open(t, config(t, reg.host))
	pinned := reg.host + "/app@" + digestOf(t, one)
	pull(t, s, pinned)
	pull(t, s, reg.host+"/app:v2")
	reg.setGuard(func(_ http.ResponseWriter, r *http.Request) bool {
		r.URL.Path = strings.Replace(r.URL.Path, digestOf(t, one), digestOf(t, two), 1)
		return false
	})
	if got, err := s.Pull(t.Context(), image.PullRequest{Ref: pinned}); err == nil {
		t.Errorf("Pull() = image %s, want an error", got.ID)
	}
	if got, err := s.Resolve(t.Context(), pinned); err != nil || got.ID != imageID(t, one) {
		t.Errorf("Resolve() = %v, %v, want %s", got, err, imageID(t, one))
	}
}
