package image

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestIsLarge: a sparse file counts with its size, a layout with that of all its files.
func TestIsLarge(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int64{
		"small": largeArchive - 1, "large": largeArchive,
		"a/blobs/sha256/1": largeArchive / 2, "a/blobs/sha256/2": largeArchive / 2, "b/blobs/sha256/1": largeArchive / 2,
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644), os.Truncate(path, size))
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"small": false, "large": true, "a": true, "b": false, "absent": false} {
		if got := isLarge(filepath.Join(dir, name)); got != want {
			t.Errorf("isLarge(%s) = %t, want %t", name, got, want)
		}
	}
}
