package image_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image"
)

// rawManifest is a manifest, or a list, with any text.
type rawManifest struct {
	text string
	kind types.MediaType
}

func (r rawManifest) RawManifest() ([]byte, error)        { return []byte(r.text), nil }
func (r rawManifest) MediaType() (types.MediaType, error) { return r.kind, nil }
func (r rawManifest) Digest() (v1.Hash, error) {
	d, _, err := v1.SHA256(strings.NewReader(r.text))
	return d, err
}

// changed returns the manifest of an image or list with changes, of which nil removes a field.
func changed(t *testing.T, what remote.Taggable, kind types.MediaType, changes map[string]any) rawManifest {
	t.Helper()
	raw, err := what.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for name, value := range changes {
		if fields[name] = value; value == nil {
			delete(fields, name)
		}
	}
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return rawManifest{string(raw), kind}
}

// TestOddManifests: manifests that builders and registries make, and things that are not images.
func TestOddManifests(t *testing.T) {
	t.Parallel()
	img, twice := ociImage(t), tree{"a": "1"}
	list := listOf(t, "linux/amd64", img)
	const one, docker, index = types.OCIManifestSchema1, types.DockerManifestSchema2, types.OCIImageIndex
	layerType := func(kind types.MediaType) remote.Taggable {
		return oddImage(t, simple(t, "x"), func(m *v1.Manifest, _ map[string]any) { m.Layers[0].MediaType = kind })
	}
	listed := func(change func(entry map[string]any)) remote.Taggable {
		var fields struct{ Manifests []map[string]any }
		if err := json.Unmarshal([]byte(changed(t, list, index, nil).text), &fields); err != nil {
			t.Fatal(err)
		}
		change(fields.Manifests[0])
		return changed(t, list, index, map[string]any{"manifests": fields.Manifests})
	}
	for name, c := range map[string]struct {
		what remote.Taggable
		want string // of an error
	}{
		"no media type":  {changed(t, img, one, map[string]any{"mediaType": nil}), ""},
		"unknown fields": {changed(t, img, one, map[string]any{"x": []int{1}, "annotations": map[string]string{"": ""}}), ""},
		"a subject":      {changed(t, img, one, map[string]any{"subject": map[string]any{"digest": digestOf(t, img)}}), ""},
		"3 MiB":          {changed(t, img, one, map[string]any{"x": strings.Repeat("x", 3<<20)}), ""},
		"5 MiB":          {changed(t, img, one, map[string]any{"x": strings.Repeat("x", 5<<20)}), "exceeded maximum"},
		"wrong size":     {listed(func(entry map[string]any) { entry["size"] = 1 }), ""},
		"features": {listed(func(entry map[string]any) {
			entry["platform"] = map[string]any{"os": "linux", "architecture": "amd64", "os.features": []string{"x"}}
		}), ""},
		"one layer twice":  {craft(t, nil, twice, tree{".wh.a": ""}, twice), ""},
		"twice packed":     {imageOf(t, nil, layer(t, twice), layer(t, tree{}), layerOf(t, twice, compression.ZStd)), ""},
		"empty layers":     {craft(t, nil, tree{}, tree{}, tree{"a": "1"}, tree{}), ""},
		"a tar as gzip":    {layerType("application/vnd.docker.image.rootfs.diff.tar"), ""},
		"gzip as zstd":     {layerType("application/vnd.docker.image.rootfs.diff.tar.zstd"), ""},
		"restricted layer": {layerType(types.DockerForeignLayer), ""},
		"schema 1": {rawManifest{`{"schemaVersion":1,"name":"app","tag":"v1","architecture":"amd64",
			"fsLayers":[],"history":[],"signatures":[]}`, types.DockerManifestSchema1}, "manifest"},
		"docker's as OCI": {changed(t, simple(t, "x"), docker, nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.push(t, "app:base", list)
			if image, ok := c.what.(v1.Image); ok {
				reg.push(t, "app:v1", image)
			} else {
				reg.push(t, "app:docker", simple(t, "x"))
				reg.push(t, "app:v1", c.what)
			}
			s := open(t, config(t, reg.host))
			got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Pull = %v, %v, want an error with %q", got, err, c.want)
				}
				checkEmpty(t, s)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rootfs(t, s, "c", got.ID)
		})
	}
}

// TestTagAndDigest: of a name with both, the digest counts.
func TestTagAndDigest(t *testing.T) {
	t.Parallel()
	reg := newRegistry(t)
	first := simple(t, "first")
	reg.push(t, "app:v1", first)
	reg.push(t, "app:v2", simple(t, "second"))
	s := open(t, config(t, reg.host))
	for _, tag := range []string{"v1", "v2", "absent"} {
		got := pull(t, s, reg.host+"/app:"+tag+"@"+digestOf(t, first))
		if got.ID != imageID(t, first) {
			t.Errorf("%s: image %s, want %s", tag, got.ID, imageID(t, first))
		}
		checkNames(t, got, nil, []string{reg.host + "/app@" + digestOf(t, first)})
	}
}

// oddWriter changes the headers of an answer before they are sent.
type oddWriter struct {
	http.ResponseWriter
	change func(http.Header)
}

func (o *oddWriter) WriteHeader(code int) {
	o.change(o.Header())
	o.ResponseWriter.WriteHeader(code)
}

// TestOddAnswers: registries answer in many ways that are right, or of which the error does not matter.
func TestOddAnswers(t *testing.T) {
	t.Parallel()
	img, blob := largeImage(t)
	top := layerDigest(t, img, 0)
	headers := func(change func(http.Header)) func(*testRegistry, http.ResponseWriter, *http.Request) bool {
		return func(reg *testRegistry, w http.ResponseWriter, r *http.Request) bool {
			reg.inner.ServeHTTP(&oddWriter{w, change}, r)
			return true
		}
	}
	challenge := func(lines ...string) func(*testRegistry, http.ResponseWriter, *http.Request) bool {
		return func(_ *testRegistry, w http.ResponseWriter, r *http.Request) bool {
			if name, secret, ok := r.BasicAuth(); ok && name == user && secret == password {
				return false
			}
			w.Header()["Www-Authenticate"] = lines
			refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
			return true
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("another host got credentials")
		}
		_, _ = w.Write(blob)
	}))
	t.Cleanup(other.Close)
	for name, guard := range map[string]func(*testRegistry, http.ResponseWriter, *http.Request) bool{
		"no length":      headers(func(h http.Header) { h.Del("Content-Length") }),
		"no digest":      headers(func(h http.Header) { h.Del("Docker-Content-Digest") }),
		"another digest": headers(func(h http.Header) { h.Set("Docker-Content-Digest", "sha256:"+strings.Repeat("0", 64)) }),
		"no HEAD": func(_ *testRegistry, w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
			return r.Method == http.MethodHead
		},
		"redirect": func(_ *testRegistry, w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, top) {
				return false
			}
			http.Redirect(w, r, other.URL+"/blob?X-Signature=abc", http.StatusTemporaryRedirect)
			return true
		},
		"compressed": func(reg *testRegistry, w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") || r.Header.Get("Accept-Encoding") != "gzip" {
				return false
			}
			answer := httptest.NewRecorder()
			reg.inner.ServeHTTP(answer, r)
			w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(answer.Body.Bytes())
			_ = z.Close()
			return true
		},
		"capitals":            challenge(`BASIC realm="x"`),
		"Negotiate and Basic": challenge("Negotiate", `Basic realm="x"`),
		"Basic and Bearer":    challenge(`Basic realm="x", Bearer realm="http://nowhere.invalid/token"`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			reg.push(t, "app:v1", img)
			reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool { return guard(reg, w, r) })
			request := image.PullRequest{Ref: reg.host + "/app:v1"}
			if strings.Contains(name, "Basic") || name == "capitals" {
				request.Auth = &image.Auth{Username: user, Password: password}
			}
			s := open(t, config(t, reg.host, strings.TrimPrefix(other.URL, "http://")))
			for range 2 { // the second finds the image
				if got, err := s.Pull(t.Context(), request); err != nil || got.ID != imageID(t, img) {
					t.Errorf("Pull = %v, %v, want %s", got, err, imageID(t, img))
				}
			}
		})
	}
}

// TestOtherRange: a server that sends another part of a blob than the one that was requested spoils nothing.
func TestOtherRange(t *testing.T) {
	t.Parallel()
	img, blob := largeImage(t)
	reg := newRegistry(t)
	reg.push(t, "app:v1", img)
	reg.setGuard(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, layerDigest(t, img, 0)) {
			return false
		}
		if r.Header.Get("Range") == "" {
			w.Header().Set("Content-Length", fmt.Sprint(len(blob)))
			_, _ = w.Write(blob[:len(blob)/2])
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(blob)/2-1, len(blob)))
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(blob[:len(blob)/2])
		return true
	})
	cfg := config(t, reg.host)
	s := open(t, cfg)
	if got, err := s.Pull(t.Context(), image.PullRequest{Ref: reg.host + "/app:v1"}); err == nil {
		t.Errorf("Pull = %v, want an error", got)
	}
	checkNothingPulled(t, s, cfg)
}

// TestOddConfigs: what builders write, or omit, in the configuration of an image.
func TestOddConfigs(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("l", 70_000)
	for name, change := range map[string]func(map[string]any){
		"no config":       func(c map[string]any) { delete(c, "config") },
		"null":            func(c map[string]any) { c["config"] = nil },
		"no history":      func(c map[string]any) { delete(c, "history") },
		"other history":   func(c map[string]any) { c["history"] = []any{map[string]any{"empty_layer": true}} },
		"no date":         func(c map[string]any) { delete(c, "created") },
		"zero date":       func(c map[string]any) { c["created"] = "0001-01-01T00:00:00Z" },
		"far date":        func(c map[string]any) { c["created"] = "9999-12-31T23:59:59Z" },
		"null volumes":    func(c map[string]any) { c["config"] = map[string]any{"Volumes": nil, "Entrypoint": nil} },
		"ports":           func(c map[string]any) { c["config"] = map[string]any{"ExposedPorts": map[string]any{"x": nil}} },
		"a large label":   func(c map[string]any) { c["config"] = map[string]any{"Labels": map[string]string{"a": large}} },
		"unknown signal":  func(c map[string]any) { c["config"] = map[string]any{"StopSignal": "SIGFOO"} },
		"user of a group": func(c map[string]any) { c["config"] = map[string]any{"User": ":5"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := newRegistry(t)
			odd := oddImage(t, simple(t, "x"), func(_ *v1.Manifest, config map[string]any) { change(config) })
			reg.push(t, "app:v1", odd)
			cfg := config(t, reg.host)
			s := open(t, cfg)
			if got := pull(t, s, reg.host+"/app:v1"); got.ID != imageID(t, odd) {
				t.Errorf("image %s, want %s", got.ID, imageID(t, odd))
			}
			closeStore(t, s)
			if got, err := open(t, cfg).Resolve(t.Context(), reg.host+"/app:v1"); err != nil || got.ID != imageID(t, odd) {
				t.Errorf("Resolve after a restart = %v, %v, want %s", got, err, imageID(t, odd))
			}
		})
	}
}
