package runc

import (
	"testing"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/process"
)

func TestRemovableByPodd(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Runtime, *record)
		want   bool
	}{
		"complete":              {func(*Runtime, *record) {}, true},
		"without cgroupsPath":   {func(_ *Runtime, rec *record) { rec.Cgroup = "" }, false},
		"of another boot":       {func(_ *Runtime, rec *record) { rec.Init = process.Process{} }, false},
		"without cgroups":       {func(_ *Runtime, rec *record) { rec.Cgroups = nil }, false},
		"below its cgroup":      {func(_ *Runtime, rec *record) { rec.Cgroups[""] += "/below" }, false},
		"now driven by systemd": {func(r *Runtime, _ *record) { r.cfg.SystemdCgroup = true }, false},
	} {
		r := ofVersion("")
		rec := record{Init: process.Process{Pid: 1}, Cgroup: "/pod/c", Cgroups: cgroups.Dirs{"": "/sys/pod/c"}}
		tt.change(r, &rec)
		if got := r.removableByPodd(rec); got != tt.want {
			t.Errorf("%s: removableByPodd = %v, want %v", name, got, tt.want)
		}
	}
}
