package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Support is what this machine's cgroups offer.
type Support struct {
	// V2 is true on a pure cgroup v2 machine.
	V2 bool
	// Hugetlb and Swap: use of huge pages and of swap can be limited.
	Hugetlb, Swap bool
}

// Probe reads what this machine's cgroups offer.
func Probe() (Support, error) {
	const root = "/sys/fs/cgroup"
	var st unix.Statfs_t
	if err := unix.Statfs(root, &st); err != nil {
		return Support{}, &fs.PathError{Op: "statfs", Path: root, Err: err}
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return probeV2(root)
	}
	h, err := mounted()
	return h.probeV1(), err
}

// probeV2 looks for swap accounting in the cgroups below the root: the root itself has no memory.swap.max. If none of
// them has a memory controller yet, the kernel's support of swap decides.
func probeV2(root string) (Support, error) {
	data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return Support{}, err
	}
	limits, err1 := filepath.Glob(filepath.Join(root, "*", "memory.max"))
	swaps, err2 := filepath.Glob(filepath.Join(root, "*", "memory.swap.max"))
	return Support{
		V2: true, Hugetlb: slices.Contains(strings.Fields(string(data)), "hugetlb"),
		Swap: len(swaps) > 0 || len(limits) == 0 && exists("/proc/swaps"),
	}, errors.Join(err1, err2)
}

// probeV1 is for v1 and hybrid machines: a controller counts where v1 has it mounted.
func (h hierarchies) probeV1() Support {
	memory, hugetlb := h["memory"].dir, h["hugetlb"].dir
	return Support{
		Hugetlb: hugetlb != "",
		Swap:    memory != "" && exists(filepath.Join(memory, "memory.memsw.limit_in_bytes")),
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
