package space

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// TestCheck: what needs more than half of the free space is refused, naming the directory itself, not a link to it.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	half, err := Half(dir)
	if err != nil || half <= 0 {
		t.Fatalf("Half = %d, %v, want some space", half, err)
	}
	if err := Check(dir, 1); err != nil {
		t.Errorf("Check of 1 byte = %v, want nil", err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, bytes := range []uint64{uint64(half) * 3 / 2, 1 << 63} {
		err := Check(link, bytes)
		if !errdefs.IsResourceExhausted(err) || strings.Contains(err.Error(), "link") {
			t.Errorf("Check of %d bytes with %d free = %v, want %v for %s", bytes, 2*half, err,
				errdefs.ErrResourceExhausted, dir)
		}
	}
	if err := Check(filepath.Join(dir, "none"), 1); err == nil {
		t.Error("Check of a directory that there is not = nil, want an error")
	}
}

// TestReserve: what others write at the same time has been promised its space.
func TestReserve(t *testing.T) {
	dir := t.TempDir()
	half, err := Half(dir)
	if err != nil {
		t.Fatal(err)
	}
	var p Promised
	bytes := uint64(half) * 3 / 5
	done, err := p.Reserve(dir, bytes)
	if err != nil {
		t.Fatalf("first Reserve = %v, want nil", err)
	}
	_, err = p.Reserve(dir, bytes)
	if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "in progress") {
		t.Errorf("second Reserve = %v, want %v that names the others", err, errdefs.ErrResourceExhausted)
	}
	done()
	if _, err := p.Reserve(dir, bytes); err != nil {
		t.Errorf("Reserve after the first was done = %v, want nil", err)
	}
}
