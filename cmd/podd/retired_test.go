package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/runc"
)

func TestFormerHandlerTouchesNothingThatAShimMade(t *testing.T) {
	run := t.TempDir()
	dir := filepath.Join(run, "containers")
	if err := os.MkdirAll(filepath.Join(dir, "vm", "rootfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := formerHandler{runc.New(runc.Config{Name: "kata", Path: "kata", Root: filepath.Join(run, "runtimes"), RunDir: dir}), "kata", dir}
	if _, err := f.Wait(t.Context(), "vm"); !errdefs.IsUnavailable(err) {
		t.Errorf("Wait: %v: the container would be taken for ended", err)
	}
	if err := f.Delete(t.Context(), "vm"); !errdefs.IsUnavailable(err) {
		t.Errorf("Delete: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "vm", "rootfs")); err != nil {
		t.Error(err)
	}
	if err := f.Delete(t.Context(), "absent"); err != nil {
		t.Errorf("Delete of nothing: %v", err)
	}
}
