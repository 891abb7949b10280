package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
)

func TestSpecReader(t *testing.T) {
	dir := t.TempDir()
	read := specReader(dir)
	for id, content := range map[string]string{"good": `{"ociVersion":"1.0.2"}`, "bad": `{`} {
		if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, id, "config.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if spec, err := read("good"); err != nil || spec.Version != "1.0.2" {
		t.Errorf("read(good) = %v, %v, want version 1.0.2", spec, err)
	}
	if _, err := read("bad"); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("read(bad) = %v, want an error other than not found", err)
	}
	if _, err := read("gone"); !errdefs.IsNotFound(err) {
		t.Errorf("read(gone) = %v, want not found", err)
	}
}
