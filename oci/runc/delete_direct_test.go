package runc

import (
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/process"
)

// inCgroup is the request of a container with that cgroupsPath.
func inCgroup(path string) oci.CreateRequest {
	return oci.CreateRequest{Spec: &specs.Spec{Linux: &specs.Linux{CgroupsPath: path}}}
}

func TestOwnedCgroup(t *testing.T) {
	for version, want := range map[string]string{
		"runc version 1.1.5+ds1": "/pod/c", "runc version 1.5.2": "/pod/c", "crun version 1.8.1": "/pod/c",
		"runc version 1.0.3": "", "runc version 2.0.0": "", "crun version 1.7": "", "crun version 2.0": "",
		"runsc version release-1.28": "", "": "",
	} {
		if got := ofVersion(version).ownedCgroup(inCgroup("/pod/c")); got != want {
			t.Errorf("%q: ownedCgroup = %q, want %q", version, got, want)
		}
	}
	hook := []specs.Hook{{Path: "/bin/true"}}
	for name, tt := range map[string]struct {
		change func(*Runtime, *oci.CreateRequest)
		want   string
	}{
		"start hooks": {func(_ *Runtime, q *oci.CreateRequest) {
			q.Spec.Hooks = &specs.Hooks{Poststart: hook, CreateRuntime: hook, StartContainer: hook}
		}, "/pod/c"},
		"poststop":   {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Hooks = &specs.Hooks{Poststop: hook} }, ""},
		"intelRdt":   {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Linux.IntelRdt = &specs.LinuxIntelRdt{} }, ""},
		"systemd":    {func(r *Runtime, _ *oci.CreateRequest) { r.cfg.SystemdCgroup = true }, ""},
		"restored":   {func(_ *Runtime, q *oci.CreateRequest) { q.Image = "/images" }, ""},
		"relative":   {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Linux.CgroupsPath = "pod/c" }, ""},
		"not clean":  {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Linux.CgroupsPath = "//pod/./c/" }, "/pod/c"},
		"none":       {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Linux.CgroupsPath = "" }, ""},
		"not Linux":  {func(_ *Runtime, q *oci.CreateRequest) { q.Spec.Linux = nil }, ""},
		"no spec":    {func(_ *Runtime, q *oci.CreateRequest) { q.Spec = nil }, ""},
		"no changes": {func(*Runtime, *oci.CreateRequest) {}, "/pod/c"},
	} {
		r, req := ofVersion("runc version 1.5.2"), inCgroup("/pod/c")
		tt.change(r, &req)
		if got := r.ownedCgroup(req); got != tt.want {
			t.Errorf("%s: ownedCgroup = %q, want %q", name, got, tt.want)
		}
	}
}

func TestRemovableByPodd(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Runtime, *record)
		want   bool
	}{
		"complete":              {func(*Runtime, *record) {}, true},
		"of an earlier podd":    {func(_ *Runtime, rec *record) { rec.Cgroup = "" }, false},
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
