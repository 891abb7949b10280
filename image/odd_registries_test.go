package image_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/image"
)

// mirrored is a configuration with mirrors of a registry.
func mirrored(t *testing.T, origin *testRegistry, mirrors ...*testRegistry) setup {
	t.Helper()
	cfg := config(t)
	conf := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", origin.host)
	for _, m := range mirrors {
		conf += fmt.Sprintf("[[registry.mirror]]\nlocation = %q\ninsecure = true\n", m.host)
	}
	writeFile(t, cfg.RegistriesConf, conf)
	return cfg
}

// TestHalfMirrors: a mirror that has a part of an image only, or a wrong one, is passed over, and named if all fail.
func TestHalfMirrors(t *testing.T) {
	t.Parallel()
	img := craft(t, nil, tree{"a": "1"}, tree{"b": "2"})
	list := listOf(t, "linux/amd64", img)
	manifest, top := "/manifests/"+digestOf(t, img), "/blobs/"+layerDigest(t, img, 1)
	page := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>please log in</html>")
	}
	for name, c := range map[string]struct {
		part   string
		answer func(http.ResponseWriter)
	}{
		"no manifest of the list": {manifest, func(w http.ResponseWriter) { refuse(w, 404, "MANIFEST_UNKNOWN") }},
		"no blob and no JSON":     {top, func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }},
		"no blob":                 {top, func(w http.ResponseWriter) { refuse(w, 404, "BLOB_UNKNOWN") }},
		"page for a list":         {"/manifests/v1", page},
		"page for a manifest":     {manifest, page},
		"page for a config":       {"/blobs/sha256:" + imageID(t, img), page},
		"garbage":                 {top, func(w http.ResponseWriter) { fmt.Fprint(w, "garbage") }},
		"error":                   {top, func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }},
		"cut": {top, func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, "x")
		}},
		"denied": {manifest, func(w http.ResponseWriter) { refuse(w, 403, "DENIED") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			half, second, origin := newRegistry(t), newRegistry(t), newRegistry(t)
			fail := func(w http.ResponseWriter, r *http.Request) bool {
				found := r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, c.part)
				if found {
					c.answer(w)
				}
				return found
			}
			for _, r := range []*testRegistry{half, second, origin} {
				r.push(t, "app:v1", list)
			}
			half.setGuard(fail)
			second.setGuard(fail)
			ref := origin.host + "/app:v1"
			s := open(t, mirrored(t, origin, half, second))
			got := pull(t, s, ref)
			if got.ID != imageID(t, img) || !slices.Equal(got.Tags, []string{ref}) {
				t.Errorf("image %s %q, want %s of the registry", got.ID, got.Tags, imageID(t, img))
			}
			if half.count("GET /v2/app/manifests/v1") == 0 || second.count("GET /v2/app/manifests/v1") == 0 {
				t.Error("a mirror was not asked")
			}
			origin.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				refuse(w, http.StatusForbidden, "DENIED")
				return true
			})
			_, err := open(t, mirrored(t, origin, half, second)).Pull(t.Context(), image.PullRequest{Ref: ref})
			if !errdefs.IsPermissionDenied(err) {
				t.Fatalf("error %v, want the registry's", err)
			}
			for _, mirror := range []*testRegistry{half, second} {
				if !strings.Contains(err.Error(), mirror.host+"/app:v1: ") {
					t.Errorf("error %v does not name the mirror %s", err, mirror.host)
				}
			}
		})
	}
}

// TestTooLargeOfMirror: an image that exceeds a limit is not fetched again from the next source.
func TestTooLargeOfMirror(t *testing.T) {
	t.Parallel()
	mirror, origin := newRegistry(t), newRegistry(t)
	img := craft(t, nil, tree{"a": strings.Repeat("x", 2<<20)})
	mirror.push(t, "app:v1", img)
	origin.push(t, "app:v1", img)
	cfg := mirrored(t, origin, mirror)
	cfg.MaxImageBytes = 1 << 20
	origin.forget() // requests of push
	_, err := open(t, cfg).Pull(t.Context(), image.PullRequest{Ref: origin.host + "/app:v1"})
	if n := origin.count("GET "); !isFull(err) || n > 0 {
		t.Errorf("error %v after %d requests to the registry, want one of the limit after none", err, n)
	}
}

// TestStalledMirror: a mirror that sends nothing is passed over after pull_progress_timeout.
func TestStalledMirror(t *testing.T) {
	t.Parallel()
	mirror, origin := newRegistry(t), newRegistry(t)
	img := simple(t, "x")
	mirror.push(t, "app:v1", img)
	origin.push(t, "app:v1", img)
	hang(t, mirror, "/v2/app/blobs/"+layerDigest(t, img, 0))
	cfg := mirrored(t, origin, mirror)
	cfg.PullProgressTimeout = 2 * time.Second
	if got := pull(t, open(t, cfg), origin.host+"/app:v1"); got.ID != imageID(t, img) {
		t.Errorf("image %s, want %s", got.ID, imageID(t, img))
	}
}

// TestShortNameCredentials: the credentials of a request with a short name are for docker.io; no other registry that is
// searched gets them, unless they name it.
func TestShortNameCredentials(t *testing.T) {
	t.Parallel()
	first, hub := newRegistry(t), newRegistry(t)
	hub.push(t, "library/app:v1", simple(t, "x"))
	cfg := config(t)
	writeFile(t, cfg.RegistriesConf, fmt.Sprintf("unqualified-search-registries = [%q, \"docker.io\"]\n"+
		"[[registry]]\nlocation = %q\ninsecure = true\n"+
		"[[registry]]\nprefix = \"docker.io\"\nlocation = %q\ninsecure = true\n", first.host, first.host, hub.host))
	got := askForCredentials(first, "Basic")
	s := open(t, cfg)
	pullShort := func(auth image.Auth) {
		t.Helper()
		if _, err := s.Pull(t.Context(), image.PullRequest{Ref: "app:v1", Auth: &auth}); err != nil {
			t.Error(err)
		}
	}
	pullShort(image.Auth{Username: user, Password: password})
	if text := got(); text == "" || strings.Contains(text, base64Of(user+":"+password)) {
		t.Errorf("requests to the first registry %q, want some without credentials", text)
	}
	own := &image.Auth{Username: user, Password: password}
	_, err := s.Pull(t.Context(), image.PullRequest{Ref: "absent:v1", Auth: own})
	if !errdefs.IsNotFound(err) {
		t.Errorf("pull of an image that is nowhere = %v, want that it is not found", err)
	}
	pullShort(image.Auth{Username: user, Password: password, ServerAddress: first.host})
	if text := got(); !strings.Contains(text, base64Of(user+":"+password)) {
		t.Errorf("requests to the first registry %q, want credentials that name it", text)
	}
	conf := readFile(t, cfg.RegistriesConf)
	writeFile(t, cfg.RegistriesConf, strings.Replace(conf, ", \"docker.io\"", "", 1))
	_, err = s.Pull(t.Context(), image.PullRequest{Ref: "app:v2", Auth: own})
	if !errdefs.IsUnauthorized(err) || !strings.Contains(err.Error(), "use the full name") {
		t.Errorf("pull from a registry that gets no credentials = %v, want an error that says what to do", err)
	}
}

// TestBusyRegistry: a registry that answers the first request with 429 is unavailable.
func TestBusyRegistry(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	reg.setGuard(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	_, err := open(t, config(t, reg.host)).Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
	if !isUnavailable(err) {
		t.Errorf("error %v, want that the registry is unavailable", err)
	}
}

// TestAuthorityAddedLater: an authority that the node trusts only since podd started serves pulls of images that are
// stored, too: Go reads the node's authorities once per process.
func TestAuthorityAddedLater(t *testing.T) {
	if _, err := x509.SystemCertPool(); err != nil { // reads those of before
		t.Fatal(err)
	}
	reg := newRegistry(t)
	img := simple(t, "x")
	reg.push(t, "app:v1", img)
	server := httptest.NewUnstartedServer(reg.server.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := filepath.Join(t.TempDir(), "authority.pem")
	writeFile(t, authority, string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	t.Setenv("SSL_CERT_FILE", authority)
	host := strings.TrimPrefix(server.URL, "https://")
	cfg := config(t)
	writeFile(t, cfg.RegistriesConf, fmt.Sprintf("[[registry]]\nlocation = %q\n", host))
	s := open(t, cfg)
	for range 2 { // the second time it is present
		if got := pull(t, s, host+"/app:v1"); got.ID != imageID(t, img) {
			t.Errorf("image %s, want %s", got.ID, imageID(t, img))
		}
	}
}

// TestBlobOfBusyRegistry: a registry that is overloaded, or restarts, is asked for a blob again, a few times.
func TestBlobOfBusyRegistry(t *testing.T) {
	t.Parallel()
	img := simple(t, "x")
	busy := func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }
	for name, c := range map[string]struct {
		blob   string
		answer func(http.ResponseWriter)
		// times the answer is given; want is the number of requests.
		times, want int
	}{
		"layer once":    {layerDigest(t, img, 0), busy, 1, 2},
		"config once":   {"sha256:" + imageID(t, img), busy, 1, 2},
		"reset":         {layerDigest(t, img, 0), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, 2, 3},
		"always":        {layerDigest(t, img, 0), busy, 100, 3},
		"not temporary": {layerDigest(t, img, 0), func(w http.ResponseWriter) { refuse(w, 404, "BLOB_UNKNOWN") }, 100, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			var requests atomic.Int64
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, c.blob) {
					return false
				}
				if requests.Add(1) > int64(c.times) {
					return false
				}
				c.answer(w)
				return true
			})
			_, err := open(t, config(t, reg.host)).Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
			if (err == nil) != (c.times < c.want) || name == "always" && !strings.Contains(err.Error(), "503") {
				t.Errorf("Pull() = %v, want success or the registry's error", err)
			}
			if n := requests.Load(); n != int64(c.want) {
				t.Errorf("%d requests for the blob, want %d", n, c.want)
			}
		})
	}
}
