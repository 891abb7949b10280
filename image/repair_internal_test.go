package image

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/worker"
)

// TestOpenRefetched: of what a pull's process leaves, only a regular file with the digest of the layer is used.
func TestOpenRefetched(t *testing.T) {
	dir := t.TempDir()
	const content = "a layer"
	want := digest.FromString(content)
	path := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(
		os.WriteFile(path("layer"), []byte(content), 0o600), os.WriteFile(path("other"), []byte("another"), 0o600),
		os.Symlink("layer", path("link")), unix.Mkfifo(path("pipe"), 0o600), os.Mkdir(path("dir"), 0o700),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"other": "without the digest", "link": "too many levels", "pipe": "no regular file", "dir": "no regular file",
		"absent": "pull the image again",
	} {
		if f, err := openRefetched(path(name), want); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("openRefetched(%s) = %v, %v, want an error with %q", name, f, err, text)
		}
	}
	if _, err := openRefetched(path("absent"), want); !errdefs.IsUnavailable(err) {
		t.Errorf("error %v for a file that is not there, want unavailable", err)
	}
	f, err := openRefetched(path("layer"), want)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != content {
		t.Errorf("the file has %q, %v, want %q", got, err, content)
	}
}

// TestRegisterLoadedRefuses: podd believes no name and no id that the process of a load reports.
func TestRegisterLoadedRefuses(t *testing.T) {
	s := testStore(t, func(*Config) {})
	for _, c := range []struct {
		image worker.Loaded
		want  string
	}{
		{worker.Loaded{ID: "absent"}, "look up the image"},
		{worker.Loaded{ID: "absent", Names: []string{"\x1b[2J"}}, "invalid reference"},
		{worker.Loaded{ID: "absent", Names: []string{"short"}}, "canonical"},
	} {
		if err := s.registerLoaded(t.Context(), c.image, t.TempDir()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("registerLoaded(%+v) = %v, want an error with %q", c.image, err, c.want)
		}
	}
}
