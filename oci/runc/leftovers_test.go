package runc_test

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/runc"
)

func TestMonitorWithoutItsBundleIsFoundAndReaped(t *testing.T) {
	each(t, func(t *testing.T, m *ocitest.Machine) {
		r, ok := m.New().(*runc.Runtime)
		if !ok {
			t.Fatalf("%T", m.New())
		}
		lost := start(t, r, oci.CreateRequest{ID: "lost", Spec: m.Spec("sleep", "1000")})
		start(t, r, oci.CreateRequest{ID: "other", Spec: m.Spec("sleep", "1000")})
		must(t, "remove bundle", os.RemoveAll(filepath.Join(m.Config.RunDir, "lost")))
		ids, err := r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"lost", "other"}) {
			t.Errorf("found %v", ids)
		}
		must(t, "reap", r.Destroy(limit(t), "lost"))
		if err := syscall.Kill(lost.Pid, 0); err == nil {
			t.Error("its process lives")
		}
		ids, err = r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"other"}) {
			t.Errorf("found %v after it was reaped", ids)
		}
		if s, err := r.State(limit(t), "other"); err != nil || s.Status != oci.Running {
			t.Errorf("the other: %+v, %v", s, err)
		}
	})
}
