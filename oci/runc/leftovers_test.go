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
			t.Fatalf("New returned a %T, want a *runc.Runtime", m.New())
		}
		lost := start(t, r, oci.CreateRequest{ID: "lost", Spec: m.Spec("sleep", "1000")})
		start(t, r, oci.CreateRequest{ID: "other", Spec: m.Spec("sleep", "1000")})
		must(t, "remove bundle", os.RemoveAll(filepath.Join(m.Config.RunDir, "lost")))
		ids, err := r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"lost", "other"}) {
			t.Errorf("List = %q, want lost and other", ids)
		}
		must(t, "reap", r.Destroy(limit(t), "lost"))
		if err := syscall.Kill(lost.Pid, 0); err == nil {
			t.Errorf("process %d still runs after Destroy", lost.Pid)
		}
		ids, err = r.List(limit(t))
		must(t, "find", err)
		if !slices.Equal(ids, []string{"other"}) {
			t.Errorf("List after Destroy = %q, want other", ids)
		}
		if s, err := r.State(limit(t), "other"); err != nil || s.Status != oci.Running {
			t.Errorf("state of other = %+v, %v, want %s", s, err, oci.Running)
		}
	})
}
