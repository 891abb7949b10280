package image_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/podd-project/podd/image/registry"
)

const artifactType = "application/vnd.example.v1"

// pushArtifact pushes two blobs as ref.
func pushArtifact(t *testing.T, c setup, ref string) string {
	t.Helper()
	var blobs []registry.ArtifactBlob
	for _, name := range []string{"one", "two"} {
		blobs = append(blobs, registry.ArtifactBlob{
			Title: name, MediaType: "text/plain",
			Write: func(w io.Writer) error { _, err := io.WriteString(w, strings.Repeat(name, 1000)); return err },
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
	a, err := c.OpenArtifact(t.Context(), ref, artifactType)
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
	if _, err := c.OpenArtifact(t.Context(), ref, "other/type"); !errdefs.IsInvalidArgument(err) {
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
	if _, err := c.OpenArtifact(t.Context(), r.host+"/a/b:v2", artifactType); !errdefs.IsNotFound(err) {
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
		r.setGuard(nil)
	}
}
