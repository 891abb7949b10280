package reference

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// newLeases returns the directory of host-local of a network, and what reads it.
func newLeases(t *testing.T) (dir string, read func() (map[string][]string, error)) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "net")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes([]byte(`{"cniVersion":"1.0.0","name":"net","plugins":[
{"type":"bridge","ipam":{"type":"host-local","dataDir":"` + root + `"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	return dir, func() (map[string][]string, error) { return Leases(list, valid) }
}

// TestEmptiedLease: an address whose file a power failure has emptied is named, since host-local never frees it. The
// file stays. One that host-local is about to write is not named.
func TestEmptiedLease(t *testing.T) {
	for content, data := range map[string]string{"empty": "", "zeros": strings.Repeat("\x00", 600)} {
		for age, named := range map[time.Duration]bool{0: false, time.Hour: true} {
			t.Run(content+", age "+age.String(), func(t *testing.T) {
				dir, read := newLeases(t)
				path := filepath.Join(dir, "10.0.0.8")
				write(t, path, data)
				write(t, filepath.Join(dir, "10.0.0.9"), "pod1\r\neth0")
				write(t, filepath.Join(dir, "last_reserved_ip.0"), "")
				then := time.Now().Add(-age)
				if err := os.Chtimes(path, then, then); err != nil {
					t.Fatal(err)
				}
				leases, err := read()
				if len(leases) != 1 || !slices.Equal(leases["pod1"], []string{"10.0.0.9"}) {
					t.Errorf("leases = %v, want 10.0.0.9 of pod1", leases)
				}
				if (err != nil) != named || named && !strings.Contains(err.Error(), path) {
					t.Errorf("error = %v, want one with %s: %v", err, path, named)
				}
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("file = %v, want it left", err)
				}
			})
		}
	}
}

// TestHostileLeases: no file in the directory makes a reader wait, or costs memory.
func TestHostileLeases(t *testing.T) {
	dir, read := newLeases(t)
	write(t, filepath.Join(dir, "10.0.0.7"), "pod1\r\neth0")
	write(t, filepath.Join(dir, "10.0.0.10"), "x")
	err := errors.Join(
		unix.Mkfifo(filepath.Join(dir, "10.0.0.8"), 0o600),
		os.Mkdir(filepath.Join(dir, "10.0.0.9"), 0o700),
		os.Symlink("10.0.0.7", filepath.Join(dir, "10.0.0.11")),
		os.Truncate(filepath.Join(dir, "10.0.0.10"), 1<<40))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := read()
	if err != nil || !slices.Equal(slices.Collect(maps.Keys(leases)), []string{"pod1"}) {
		t.Errorf("leases = %v, %v, want that of pod1 only", leases, err)
	}
}

func valid(id string) bool { return strings.HasPrefix(id, "pod") }

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
