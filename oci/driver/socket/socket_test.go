package socket_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/oci/driver/socket"
)

// TestLongPath: a directory whose path does not fit into a socket's address.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"unix", "unixpacket"} {
		l, err := socket.Listen(network, dir, network)
		if err != nil {
			t.Fatalf("Listen(%q): %v, want none", network, err)
		}
		c, err := socket.Dial(network, dir, network)
		if err != nil {
			t.Fatalf("Dial(%q): %v, want none", network, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v, want none", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v, want none", err)
		}
		if _, err := os.Lstat(filepath.Join(dir, network)); err != nil {
			t.Errorf("socket after Close: %v, want it kept", err)
		}
	}
	if _, err := socket.Dial("unix", filepath.Join(dir, "gone"), "s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Dial in a missing directory: %v, want not exist", err)
	}
}
