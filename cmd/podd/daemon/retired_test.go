package daemon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/runc"
)

func TestRetiredHandlerLeavesContainersOfShims(t *testing.T) {
	run := t.TempDir()
	dir := filepath.Join(run, "containers")
	if err := os.MkdirAll(filepath.Join(dir, "vm", "rootfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := retiredHandler{
		runc.New(runc.Config{Name: "kata", Path: "kata", Root: filepath.Join(run, "runtimes"), RunDir: dir}), "kata", dir,
	}
	if _, err := r.Wait(t.Context(), "vm"); !errdefs.IsUnavailable(err) {
		t.Errorf("Wait() = %v, want ErrUnavailable: the container would be reported as exited", err)
	}
	if err := r.Delete(t.Context(), "vm"); !errdefs.IsUnavailable(err) {
		t.Errorf("Delete() = %v, want ErrUnavailable", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "vm", "rootfs")); err != nil {
		t.Errorf("the root filesystem of the container is gone: %v", err)
	}
	if err := r.Delete(t.Context(), "absent"); err != nil {
		t.Errorf("Delete() of an absent container = %v, want nil", err)
	}
}
