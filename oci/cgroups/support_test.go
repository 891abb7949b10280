package cgroups

import (
	"os"
	"path/filepath"
	"testing"
)

// TestProbeV2 reads trees of pure cgroup v2 machines, which this one may not be.
func TestProbeV2(t *testing.T) {
	swaps := exists("/proc/swaps")
	for name, tt := range map[string]struct {
		controllers   string
		files         []string
		hugetlb, swap bool
	}{
		"systemd": {
			"cpuset cpu io memory hugetlb pids", []string{"system.slice/memory.max", "system.slice/memory.swap.max"},
			true, true,
		},
		"no swap accounting":  {"cpu memory", []string{"system.slice/memory.max"}, false, false},
		"no cgroups yet":      {"cpu memory", nil, false, swaps},
		"a cgroup without it": {"cpu memory", []string{"init/cgroup.procs"}, false, swaps},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "cgroup.controllers"), tt.controllers+"\n")
		for _, file := range tt.files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
			write(t, filepath.Join(root, file), "max\n")
		}
		want := Support{V2: true, Hugetlb: tt.hugetlb, Swap: tt.swap}
		if got, err := probeV2(root); err != nil || got != want {
			t.Errorf("%s: probeV2 = %+v, %v, want %+v", name, got, err, want)
		}
	}
	if _, err := probeV2(t.TempDir()); err == nil {
		t.Error("probeV2 of a directory that is no cgroup: no error")
	}
}

func TestProbeV1(t *testing.T) {
	memory := t.TempDir()
	h := hierarchies{"memory": {memory, "/"}, unified: {"/no/such", "/"}}
	if got, want := h.probeV1(), (Support{}); got != want {
		t.Errorf("probeV1 without swap accounting = %+v, want %+v", got, want)
	}
	write(t, filepath.Join(memory, "memory.memsw.limit_in_bytes"), "0\n")
	h["hugetlb"] = mount{"/sys/fs/cgroup/hugetlb", "/"}
	if got, want := h.probeV1(), (Support{Hugetlb: true, Swap: true}); got != want {
		t.Errorf("probeV1 = %+v, want %+v", got, want)
	}
}
