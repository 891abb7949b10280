package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckSpace(t *testing.T) {
	dir := t.TempDir()
	if err := checkSpace(dir); err != nil {
		t.Errorf("checkSpace(%s) = %v, want no error", dir, err)
	}
	// The kernel says that /proc has no free space.
	if err := checkSpace("/proc"); err == nil || !strings.Contains(err.Error(), "/proc: 0 bytes are free") {
		t.Errorf("checkSpace(/proc) = %v, want \"/proc: 0 bytes are free\" in it", err)
	}
	if err := checkSpace(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("checkSpace of no directory = %v, want %v", err, fs.ErrNotExist)
	}
}
