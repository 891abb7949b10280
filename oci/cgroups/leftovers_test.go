package cgroups

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRemoveEmpty(t *testing.T) {
	h, err := mounted()
	if err != nil || len(h) == 0 {
		t.Fatalf("cgroup hierarchies = %v, %v, want one at least", h, err)
	}
	parent := filepath.Join(h.dirs()[0], fmt.Sprintf("podd-test-leftovers-%d", os.Getpid()))
	child := filepath.Join(parent, "child")
	if err := os.MkdirAll(child, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(child); os.Remove(parent) })
	path := "/" + filepath.Base(parent)
	if err := RemoveEmpty(path); err != nil {
		t.Fatalf("RemoveEmpty of a cgroup in use: %v", err)
	}
	if _, err := os.Stat(child); err != nil {
		t.Fatalf("stat of a cgroup in use after RemoveEmpty: %v", err)
	}
	if names, err := Children(path); err != nil || !slices.Equal(names, []string{"child"}) {
		t.Errorf("Children = %q, %v, want [child]", names, err)
	}
	if err := os.Remove(child); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveEmpty(path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(parent); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("stat after RemoveEmpty: error %v, want %v", err, fs.ErrNotExist)
		}
	}
}
