package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// quotaV1 is the file of a CPU quota of cgroup v1.
const quotaV1 = "cpu.cfs_quota_us"

// DropQuota removes the cgroup v1 CPU quotas of a container that exited. The kernel refuses a quota of the pod that is
// lower than one below, also for some time after that cgroup was removed: it frees it later. The kubelet lowers the
// pod's quota as soon as it knows that the container exited.
func (d Dirs) DropQuota() {
	var files []string
	_ = filepath.WalkDir(d["cpu"], func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Name() == quotaV1 {
			files = append(files, path)
		}
		return nil // a directory that has just been removed has no quota
	})
	slices.Reverse(files) // children first: a cgroup without a quota has its parent's
	for _, file := range files {
		_ = os.WriteFile(file, []byte("-1"), 0)
	}
}

// LiftLimits removes the limits of memory and CPU time; those of the cgroups above hold.
func (d Dirs) LiftLimits() error {
	var errs []error
	for _, f := range []struct{ controller, file, value string }{
		{"memory", "memory.limit_in_bytes", "-1"}, {"cpu", quotaV1, "-1"},
		{unified, "memory.max", "max"}, {unified, "cpu.max", "max"},
	} {
		if dir, ok := d[f.controller]; ok {
			err := os.WriteFile(filepath.Join(dir, f.file), []byte(f.value), 0)
			if !errors.Is(err, fs.ErrNotExist) { // a hierarchy of cgroup v2 next to v1 has no controllers
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
