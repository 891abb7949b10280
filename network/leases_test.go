package network

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMendUnderLock: host-local writes no address while the files are read.
func TestMendUnderLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "10.0.0.2"), []byte("pod\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := false
	_, err := mendLeases(dir, nil, func(string) bool {
		asked = true
		lock, err := os.Open(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("lock while an address is looked at = %v, want %v", err, unix.EWOULDBLOCK)
		}
		return true
	})
	if err != nil || !asked {
		t.Errorf("mendLeases = %v, asked for the id: %v, want nil and true", err, asked)
	}
}
