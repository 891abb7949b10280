package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/image/registry"
)

const artifactType = "application/vnd.example.v1"

// pushArtifact pushes two blobs as ref.
func pushArtifact(t *testing.T, c setup, ref string) string {
	t.Helper()
	one, two := strings.Repeat("one", 1000), strings.Repeat("two", 1000)
	return pushBlobs(t, c, ref, map[string]string{"one": one, "two": two})
}

// pushBlobs pushes blobs, by title, as ref.
func pushBlobs(t *testing.T, c setup, ref string, content map[string]string) string {
	t.Helper()
	var blobs []registry.ArtifactBlob
	for name, text := range content {
		blobs = append(blobs, registry.ArtifactBlob{
			Title: name, MediaType: "text/plain",
			Write: func(w io.Writer) error { _, err := io.WriteString(w, text); return err },
		})
	}
	digest, err := c.PushArtifact(t.Context(), ref, artifactType, blobs)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// blobOf fetches a blob.
func blobOf(t *testing.T, c setup, ref, title string, limit int64) ([]byte, error) {
	t.Helper()
	a, err := image.OpenArtifact(t.Context(), c.Config, ref, artifactType)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	r, err := a.Blob(t.Context(), title, limit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestArtifact(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	c, ref := config(t, r.host), r.host+"/a/b:v1"
	digest := pushArtifact(t, c, ref)
	for _, ref := range []string{ref, r.host + "/a/b@" + digest} {
		for _, name := range []string{"one", "two"} {
			data, err := blobOf(t, c, ref, name, 3000)
			if err != nil || !bytes.Equal(data, []byte(strings.Repeat(name, 1000))) {
				t.Errorf("blob %s of %s: %d bytes, %v, want the content", name, ref, len(data), err)
			}
		}
	}
	if _, err := blobOf(t, c, ref, "three", 3000); !errdefs.IsNotFound(err) {
		t.Errorf("blob that there is not = %v, want %v", err, errdefs.ErrNotFound)
	}
	if _, err := blobOf(t, c, ref, "one", 2999); !errdefs.IsResourceExhausted(err) {
		t.Errorf("blob above the limit = %v, want %v", err, errdefs.ErrResourceExhausted)
	}
	if _, err := image.OpenArtifact(t.Context(), c.Config, ref, "other/type"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("artifact of another type = %v, want %v", err, errdefs.ErrInvalidArgument)
	}
	for _, bad := range []string{"short:v1", r.host + "/a/b@" + digest, "UPPER/CASE"} {
		if _, err := c.PushArtifact(t.Context(), bad, artifactType, nil); !errdefs.IsInvalidArgument(err) {
			t.Errorf("push to %s = %v, want %v", bad, err, errdefs.ErrInvalidArgument)
		}
	}
	failed := errors.New("the source failed")
	_, err := c.PushArtifact(t.Context(), r.host+"/a/b:v2", artifactType, []registry.ArtifactBlob{
		{Title: "x", Write: func(io.Writer) error { return failed }},
	})
	if !errors.Is(err, failed) {
		t.Errorf("push of a source that fails = %v, want %v", err, failed)
	}
	if _, err := image.OpenArtifact(t.Context(), c.Config, r.host+"/a/b:v2", artifactType); !errdefs.IsNotFound(err) {
		t.Errorf("artifact after a push that failed = %v, want %v", err, errdefs.ErrNotFound)
	}
}

// TestHostileArtifact: what a registry sends counts only with the digests that were asked for, within limits.
func TestHostileArtifact(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	c, ref := config(t, r.host), r.host+"/a/b:v1"
	digest := pushArtifact(t, c, ref)
	isManifest := func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/manifests/") }
	isBlob := func(req *http.Request) bool { return strings.Contains(req.URL.Path, "/blobs/") }
	manifest := func(content string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", string(types.OCIManifestSchema1))
			fmt.Fprint(w, content)
		}
	}
	artifact := func(layer map[string]any) func(http.ResponseWriter) {
		layer["annotations"] = map[string]string{"org.opencontainers.image.title": "one"}
		data, _ := json.Marshal(map[string]any{"artifactType": artifactType, "layers": []any{layer}})
		return manifest(string(data))
	}
	layers := strings.Repeat(`{"size":1},`, 16) + `{"size":1}`
	for name, tt := range map[string]struct {
		ref   string
		of    func(*http.Request) bool
		send  func(http.ResponseWriter)
		words string
	}{
		"another manifest than the digest": {r.host + "/a/b@" + digest, isManifest, manifest("{}"), "another manifest"},
		"huge manifest":                    {ref, isManifest, manifest(strings.Repeat(" ", 5<<20)), "exceeded"},
		"manifest is no JSON":              {ref, isManifest, manifest("<html>"), "manifest"},
		"an image": {ref, isManifest, manifest(`{"schemaVersion":2,"config":{}}`),
			"want an artifact"},
		"many blobs": {ref, isManifest, manifest(`{"artifactType":"` + artifactType + `","layers":[` + layers + `]}`),
			"17 blobs"},
		"negative size": {ref, isManifest, artifact(map[string]any{"size": -1}), "-1 bytes"},
		"no digest":     {ref, isManifest, artifact(map[string]any{"size": 1, "digest": "../../x"}), "digest"},
		"other host": {ref, isManifest, artifact(map[string]any{"size": 1, "digest": "sha256:" + strings.Repeat("a", 64),
			"urls": []string{"http://127.0.0.1:1/secret"}}), "unknown"},
		"changed blob": {ref, isBlob, func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("ONE", 1000)) },
			"other content"},
		"short blob": {ref, isBlob, func(w http.ResponseWriter) { fmt.Fprint(w, "one") }, "other content"},
		"long blob": {ref, isBlob, func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("one", 2000)) },
			"other content"},
		"changed blob with a late end": {ref, isBlob, func(w http.ResponseWriter) {
			fmt.Fprint(w, strings.Repeat("ONE", 1000))
			_ = http.NewResponseController(w).Flush() // all of it, before the end
			fmt.Fprint(w, "")
		}, "other content"},
		"blob that is gone": {ref, isBlob, func(w http.ResponseWriter) { refuse(w, 404, "BLOB_UNKNOWN") }, "has lost one"},
		"redirects without end": {ref, isBlob, func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://"+r.host+"/v2/a/b/blobs/again")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "10 redirects"},
		"no answer that is the registry's": {ref, isBlob, func(w http.ResponseWriter) { w.WriteHeader(500) }, "500"},
	} {
		r.setGuard(func(w http.ResponseWriter, req *http.Request) bool {
			if !tt.of(req) {
				return false
			}
			tt.send(w)
			return true
		})
		data, err := blobOf(t, c, tt.ref, "one", 3000)
		if err == nil || !strings.Contains(err.Error(), tt.words) || len(data) > 3001 {
			t.Errorf("%s: %d bytes, %v, want an error with %q after 3001 bytes at most", name, len(data), err, tt.words)
		}
		if errdefs.IsNotFound(err) {
			t.Errorf("%s: %v reads as if the artifact had no such blob", name, err)
		}
		r.setGuard(nil)
	}
}

// TestArtifactIsConfined looks at the process that fetches a part: it has no capability, no PATH, and the credentials
// of this registry only.
func TestArtifactIsConfined(t *testing.T) {
	r := newRegistry(t)
	c, ref := config(t, r.host), r.host+"/a/b:v1"
	pushArtifact(t, c, ref)
	writeFile(t, c.AuthFile, fmt.Sprintf(`{"auths":{%q:{"auth":%q},"other.test":{"auth":%q}}}`, r.host,
		base64Of(user+":"+password), base64Of("other:"+identity)))
	arrived, proceed := hang(t, r, "/blobs/")
	done := make(chan error, 1)
	go func() {
		_, err := blobOf(t, c, ref, "one", 3000)
		done <- err
	}()
	select {
	case <-arrived:
	case err := <-done:
		t.Fatalf("fetched without a request, %v", err)
	}
	pids := pullProcesses(t, os.Getpid())
	if len(pids) != 1 {
		t.Fatalf("%d processes fetch, want 1", len(pids))
	}
	proc := fmt.Sprintf("/proc/%d/", pids[0])
	status, none := readFile(t, proc+"status"), "0000000000000000"
	for _, want := range []string{"CapPrm:\t" + none, "CapEff:\t" + none, "CapBnd:\t" + none, "NoNewPrivs:\t1",
		"Seccomp:\t2", fmt.Sprintf("NSpid:\t%d\t1\n", pids[0])} {
		if !strings.Contains(status, want) {
			t.Errorf("status of the process lacks %q: %s", want, status)
		}
	}
	if env := readFile(t, proc+"environ"); strings.Contains(env, "PATH=") {
		t.Errorf("environment of the process = %q, want no PATH", env)
	}
	text := readFile(t, proc+"fd/3")
	if !strings.Contains(text, base64Of(user+":"+password)) || strings.Contains(text, base64Of("other:"+identity)) {
		t.Errorf("credentials of the process = %s, want those for %s alone", text, r.host)
	}
	proceed()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// compressed returns a text, compressed.
func compressed(t *testing.T, text string) string {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// TestArtifactBomb: what is decompressed has a size, and the compressed content a digest.
func TestArtifactBomb(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	c, ref := config(t, r.host), r.host+"/a/b:v1"
	const limit = 1 << 20
	text := strings.Repeat("x", limit)
	pushBlobs(t, c, ref, map[string]string{
		"exact.zst": compressed(t, text), "more.zst": compressed(t, text+"x"),
		"huge.zst": compressed(t, strings.Repeat("x", 1<<26)), "none.zst": text,
		"window.zst": "\x28\xb5\x2f\xfd\x00\x88\x09\x00\x00x", // a window of 128 MiB, and "x"
	})
	if data, err := blobOf(t, c, ref, "exact.zst", limit); err != nil || string(data) != text {
		t.Errorf("blob of the limit: %d bytes, %v, want it decompressed", len(data), err)
	}
	for title, words := range map[string]string{
		"more.zst": "more than the 1048576 bytes", "huge.zst": "more than the 1048576 bytes",
		"window.zst": "window size exceeded", "none.zst": "magic number",
	} {
		if data, err := blobOf(t, c, ref, title, limit); err == nil || !strings.Contains(err.Error(), words) ||
			len(data) > limit+1 {
			t.Errorf("%s: %d bytes, %v, want an error with %q", title, len(data), err, words)
		}
	}
	changed := strings.Repeat("y", limit)
	r.setGuard(func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/blobs/") {
			fmt.Fprint(w, compressed(t, changed))
		}
		return strings.Contains(req.URL.Path, "/blobs/")
	})
	if _, err := blobOf(t, c, ref, "exact.zst", limit); !errdefs.IsDataLoss(err) {
		t.Errorf("changed blob = %v, want %v", err, errdefs.ErrDataLoss)
	}
}

// TestArtifactOfMirror: a mirror, also one for digests only, is asked before the registry, with its credentials.
func TestArtifactOfMirror(t *testing.T) {
	t.Parallel()
	mirror, origin := newRegistry(t), newRegistry(t)
	digest := pushArtifact(t, config(t, mirror.host), mirror.host+"/a/b:v1")
	mirror.setGuard(basicAuth)
	c := config(t)
	writeFile(t, c.AuthFile, fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, mirror.host, base64Of(user+":"+password)))
	writeFile(t, c.RegistriesConf, fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n[[registry.mirror]]\n"+
		"location = %q\ninsecure = true\npull-from-mirror = \"digest-only\"\n", origin.host, mirror.host))
	data, err := blobOf(t, c, origin.host+"/a/b@"+digest, "one", 3000)
	if err != nil || len(data) != 3000 || origin.count("GET") > 0 {
		t.Errorf("blob: %d bytes, %v, with %d requests to the registry; want 3000 bytes without one", len(data), err,
			origin.count("GET"))
	}
	if _, err := blobOf(t, c, origin.host+"/a/b:v1", "one", 3000); !errdefs.IsNotFound(err) {
		t.Errorf("blob of a tag, which that mirror does not serve = %v, want %v", err, errdefs.ErrNotFound)
	}
	mirror.setGuard(nil)
	origin.push(t, "a/b:v1", simple(t, "x"))
	c = config(t) // in which they are the other way round
	writeFile(t, c.RegistriesConf, fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n[[registry.mirror]]\n"+
		"location = %q\ninsecure = true\n", mirror.host, origin.host))
	if data, err := blobOf(t, c, mirror.host+"/a/b:v1", "one", 3000); err != nil || len(data) != 3000 {
		t.Errorf("blob when a mirror has an image instead: %d bytes, %v, want it from the registry", len(data), err)
	}
}
