package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/cmd/podd/settings"
)

// stateConfig returns a configuration with new directories.
func stateConfig(t *testing.T) settings.Config {
	t.Helper()
	dir := t.TempDir()
	c := settings.Default()
	c.Root, c.Run, c.Listen = filepath.Join(dir, "root"), filepath.Join(dir, "run"), filepath.Join(dir, "run/podd.sock")
	return c
}

func TestOpenStateLocksBothDirectories(t *testing.T) {
	log, _ := test.NewNullLogger()
	first, other := stateConfig(t), stateConfig(t)
	st, err := openState(first.Root, first.Run, "", log)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]settings.Config{
		"same root": {Root: first.Root, Run: other.Run},
		"same run":  {Root: other.Root, Run: first.Run},
	} {
		_, err := openState(c.Root, c.Run, "", log)
		if want := fmt.Sprintf("is held by process %d (", os.Getpid()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: openState() = %v, want an error with %q", name, err, want)
		}
	}
	// A failed attempt holds no lock: the other directories are free.
	free, err := openState(other.Root, other.Run, "", log)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*state{st, free} {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
	again, err := openState(first.Root, first.Run, "", log)
	if err != nil {
		t.Fatalf("openState() after close = %v, want nil", err)
	}
	if err := again.close(); err != nil {
		t.Error(err)
	}
}

func TestOpenStateRefusesANewerLayout(t *testing.T) {
	log, _ := test.NewNullLogger()
	c := stateConfig(t)
	if err := os.MkdirAll(c.Root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkpoint.CheckLayout(filepath.Join(c.Root, "layout"), stateFormat+1, "podd 99.0"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first failure must release the locks
		_, err := openState(c.Root, c.Run, "", log)
		if err == nil || !strings.Contains(err.Error(), "podd 99.0") {
			t.Fatalf("openState() = %v, want an error with podd 99.0", err)
		}
	}
}
