package runc

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/oci/cgroups"
)

func TestNewExecGroup(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	for name, tt := range map[string]struct {
		version string
		own     cgroups.Dirs
		dir     string
		opt     string
	}{
		"runc on v2": {"runc version 1.1.5", cgroups.Dirs{"": v2}, v2 + "/podd-exec-7-c", "--cgroup=podd-exec-7-c"},
		"crun on v2": {"crun version 1.8.1", cgroups.Dirs{"": v2}, v2 + "/podd-exec-7-c", "--cgroup=podd-exec-7-c"},
		"runc on v1": {"runc version 1.5.2", cgroups.Dirs{"freezer": v1, "memory": v2}, v1 + "/podd-exec-7-c",
			"--cgroup=freezer:podd-exec-7-c"},
		"runc on hybrid": {"runc version 1.5.2", cgroups.Dirs{"freezer": v1, "": v2}, v1 + "/podd-exec-7-c",
			"--cgroup=freezer:podd-exec-7-c"},
		"crun on v1":  {"crun version 1.20", cgroups.Dirs{"freezer": v1}, "", ""},
		"no freezer":  {"runc version 1.5.2", cgroups.Dirs{"memory": v1}, "", ""},
		"old runc":    {"runc version 1.0.3", cgroups.Dirs{"": v2}, "", ""},
		"another":     {"runsc version release-20260905.0", cgroups.Dirs{"": v2}, "", ""},
		"no cgroup":   {"runc version 1.5.2", nil, "", ""},
		"cgroup gone": {"runc version 1.5.2", cgroups.Dirs{"": v2 + "/gone"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := ofVersion(tt.version).newExecGroup(record{Cgroups: tt.own}, "/run/podd/containers/c/exec-7.json")
			defer g.Remove()
			if tt.dir == "" {
				if g != nil || execGroupOpts(g) != nil {
					t.Errorf("group %+v, want none", g)
				}
				return
			}
			if g == nil || len(execGroupOpts(g)) != 1 || execGroupOpts(g)[0] != tt.opt {
				t.Fatalf("group %+v, want option %s", g, tt.opt)
			}
			if _, err := os.Stat(tt.dir); err != nil {
				t.Error(err)
			}
			g.Remove()
			if left, _ := filepath.Glob(filepath.Dir(tt.dir) + "/*"); len(left) > 0 {
				t.Errorf("cgroups = %v, want none left", left)
			}
		})
	}
}
