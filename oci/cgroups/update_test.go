package cgroups

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// scratch is a copy of a golden tree that may be written to.
func scratch(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS(testdata(t, name))))
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	}))
	return dir
}

// written lists the files below dir that differ from the golden tree, as "file=text".
func written(t *testing.T, dir, name string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		now, err := os.ReadFile(path)
		must(t, err)
		before, err := os.ReadFile(filepath.Join(testdata(t, name), rel))
		must(t, err)
		if string(now) != string(before) {
			out = append(out, fmt.Sprintf("%s=%s", filepath.Base(path), now))
		}
		return nil
	}))
	slices.Sort(out)
	return out
}

func TestUpdate(t *testing.T) {
	for name, tt := range map[string]struct {
		r      specs.LinuxResources
		v1, v2 []string
	}{
		"nothing": {},
		"shares": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(1024))}}, []string{"cpu.shares=1024"},
			[]string{"cpu.weight=100"},
		},
		"quota and period": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(30000)), Period: new(uint64(50000))}},
			[]string{"cpu.cfs_period_us=50000", "cpu.cfs_quota_us=30000"}, []string{"cpu.max=30000 50000"},
		},
		"quota alone": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(30000))}}, []string{"cpu.cfs_quota_us=30000"},
			[]string{"cpu.max=30000 100000"},
		},
		"period alone": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Period: new(uint64(50000))}}, []string{"cpu.cfs_period_us=50000"},
			[]string{"cpu.max=20000 50000"},
		},
		"no quota": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(-1))}}, []string{"cpu.cfs_quota_us=-1"},
			[]string{"cpu.max=max 100000"},
		},
		"cpuset": {
			specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "1", Mems: "0-1"}},
			[]string{"cpuset.cpus=1", "cpuset.mems=0-1"}, []string{"cpuset.cpus=1", "cpuset.mems=0-1"},
		},
		"memory": {
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20))}},
			[]string{"memory.limit_in_bytes=1048576"}, []string{"memory.max=1048576"},
		},
		"memory and swap": {
			specs.LinuxResources{
				Memory: &specs.LinuxMemory{Limit: new(int64(1 << 20)), Swap: new(int64(3 << 20)), Reservation: new(int64(4096))},
			},
			[]string{"memory.limit_in_bytes=1048576", "memory.memsw.limit_in_bytes=3145728", "memory.soft_limit_in_bytes=4096"},
			[]string{"memory.low=4096", "memory.max=1048576", "memory.swap.max=2097152"},
		},
		"no memory limit": {
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(-1)), Swap: new(int64(-1))}},
			[]string{"memory.limit_in_bytes=-1", "memory.memsw.limit_in_bytes=-1"},
			[]string{"memory.max=max", "memory.swap.max=max"},
		},
		"huge pages": {
			specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 2 << 20}}},
			[]string{"hugetlb.2MB.limit_in_bytes=2097152", "hugetlb.2MB.rsvd.limit_in_bytes=2097152"},
			[]string{"hugetlb.2MB.max=2097152", "hugetlb.2MB.rsvd.max=2097152"},
		},
		"pids": {
			specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(7))}}, []string{"pids.max=7"}, []string{"pids.max=7"},
		},
		"no pids": {
			specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(-1))}}, []string{"pids.max=max"},
			[]string{"pids.max=max"},
		},
		"cgroup files": {
			specs.LinuxResources{Unified: map[string]string{"memory.peak": "1", "cpu.max": "max 5"}}, nil,
			[]string{"cpu.max=max 5", "memory.peak=1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for version, want := range map[string][]string{"v1": tt.v1, "v2": tt.v2} {
				dir := scratch(t, version)
				tree := choose(version == "v2", treeV2(dir), treeV1(dir))
				g, err := tree.At(group)
				g = open(t, g, err)
				err = g.Update(&tt.r)
				if version == "v1" && tt.r.Unified != nil {
					if !errdefs.IsFailedPrecondition(err) {
						t.Errorf("Update of v2 files on v1: error %v, want ErrFailedPrecondition", err)
					}
					continue
				}
				must(t, err)
				if got := written(t, dir, version); !slices.Equal(got, want) {
					t.Errorf("%s: got %q, want %q", version, got, want)
				}
			}
		})
	}
}

func TestUpdateErrors(t *testing.T) {
	g, err := treeV2(scratch(t, "v2")).At("bare/podd-77aa")
	g = open(t, g, err)
	limit := specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(1))}}
	if err := g.Update(&limit); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "memory.max") {
		t.Errorf("Update without the controller: error %v, want ErrFailedPrecondition for memory.max", err)
	}
	for _, key := range []string{"../x", "a/b", ""} {
		if err := g.Update(&specs.LinuxResources{Unified: map[string]string{key: "1"}}); err == nil {
			t.Errorf("Update of the file %q: no error", key)
		}
	}
	must(t, os.RemoveAll(g.places["memory"].dir))
	if err := g.Update(&limit); !errdefs.IsNotFound(err) {
		t.Errorf("Update of a removed group: error %v, want ErrNotFound", err)
	}
	g.Close()
	if err := g.Update(&limit); !errdefs.IsNotFound(err) {
		t.Errorf("Update of a closed group: error %v, want ErrNotFound", err)
	}
}

func TestShares(t *testing.T) {
	for shares, want := range map[uint64][2]uint64{
		0: {1, 1}, 2: {1, 1}, 3: {2, 1}, 102: {17, 4}, 512: {59, 20}, 1024: {100, 39}, 2048: {174, 79},
		262144: {10000, 10000}, 1 << 30: {10000, 10000},
	} {
		if got := [2]uint64{WeightOf(shares), OldWeightOf(shares)}; got != want {
			t.Errorf("weights of %d shares = %d, want %d", shares, got, want)
		}
	}
	for weight := uint64(1); weight <= maxWeight; weight++ {
		if back := WeightOf(SharesOf(weight)); back != weight {
			t.Fatalf("WeightOf(SharesOf(%d)) = %d, want the same", weight, back)
		}
	}
	if SharesOf(0) != 0 {
		t.Errorf("SharesOf(0) = %d, want 0", SharesOf(0))
	}
}

func TestSlicePath(t *testing.T) {
	for in, want := range map[string]string{
		"-.slice":                             "/",
		"system.slice":                        "/system.slice",
		"kubepods.slice":                      "/kubepods.slice",
		"kubepods-burstable-pod7e9d_11.slice": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod7e9d_11.slice",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-pod1.slice": "/kubepods.slice/kubepods-pod1.slice",
	} {
		if got := SlicePath(in); got != want {
			t.Errorf("SlicePath(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestOnly(t *testing.T) {
	tree := treeV1(testdata(t, "v1"))
	pod, err := tree.At("kubepods/pod7e9d")
	pod = open(t, pod, err)
	main, err := tree.At(group)
	main = open(t, main, err)
	for _, tt := range []struct {
		g    *Group
		own  string
		want bool
	}{{pod, container, true}, {pod, "podd-other", false}, {main, "init.scope", false}} {
		got, err := tt.g.Only(func(child string) bool { return child == tt.own })
		if must(t, err); got != tt.want {
			t.Errorf("Only of %s with %s = %v, want %v", tt.g.Path(), tt.own, got, tt.want)
		}
	}
}
