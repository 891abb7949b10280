package state

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckSpace(t *testing.T) {
	dir := t.TempDir()
	if err := CheckSpace(dir); err != nil {
		t.Errorf("CheckSpace(%s) = %v, want no error", dir, err)
	}
	// The kernel says that /proc has no free space.
	if err := CheckSpace("/proc"); err == nil || !strings.Contains(err.Error(), "/proc: 0 bytes are free") {
		t.Errorf("CheckSpace(/proc) = %v, want \"/proc: 0 bytes are free\" in it", err)
	}
	if err := CheckSpace(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("CheckSpace of no directory = %v, want %v", err, fs.ErrNotExist)
	}
}
