package cgroups

import (
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
