package cgroups

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// realGroup makes a cgroup in every hierarchy of this machine, with a process that burns time and memory in it, and
// returns the process's id.
func realGroup(t testing.TB, tree *Tree, name string) int {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes cgroups")
	}
	dirs := map[string]bool{}
	for _, controller := range append(controllers(), unified) {
		if m := tree.mounts[controller]; m.dir != "" {
			dirs[filepath.Join(m.dir, name)] = true
		}
	}
	cmd := exec.Command("sh", "-c", "read go; big=$(head -c 4000000 /dev/zero | tr '\\0' x); while :; do :; done")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		removeGroup(t, dirs)
	})
	for dir := range dirs {
		join(t, dir, cmd.Process.Pid)
	}
	fmt.Fprintln(in)
	return cmd.Process.Pid
}

func join(t testing.TB, dir string, pid int) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // v1 starts without any
		if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil {
			os.WriteFile(filepath.Join(dir, file), value, 0o644)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, pid), 0o644); err != nil {
		t.Fatal(err)
	}
}

func removeGroup(t testing.TB, dirs map[string]bool) {
	t.Helper()
	for dir := range dirs {
		deadline := time.Now().Add(10 * time.Second)
		for os.Remove(dir) != nil && isDir(dir) {
			if time.Now().After(deadline) {
				t.Fatalf("cgroup %s cannot be removed", dir)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestReal(t *testing.T) {
	before := openFiles(t)
	tree, err := Find()
	must(t, err)
	spare := tree.spare.Load()
	name := fmt.Sprintf("poddtest-%d", os.Getpid())
	t.Run("alive", func(t *testing.T) {
		pid := realGroup(t, tree, name)
		g, err := tree.Of(pid, name)
		g = open(t, g, err)
		first, err := g.Read()
		must(t, err)
		second := first
		for deadline := time.Now().Add(20 * time.Second); second.CPU.Total < first.CPU.Total+10*time.Millisecond ||
			second.Memory.RSS < 4_000_000 || second.Pids.Current != 1; {
			if time.Now().After(deadline) {
				t.Fatalf("after 20 s: %+v, %+v, %+v, want 10 ms of CPU time more, 4 MB and 1 task",
					second.CPU, second.Memory, second.Pids)
			}
			time.Sleep(5 * time.Millisecond)
			second, err = g.Read()
			must(t, err)
		}
		if m := second.Memory; m == nil || m.Usage == 0 || m.PageFaults == 0 || m.WorkingSet > m.Usage {
			t.Errorf("Memory = %+v, want usage and page faults, and a working set of at most the usage", m)
		}
		if isDir("/proc/pressure") && tree.mounts[unified].dir != "" && second.CPUPressure == nil {
			t.Error("CPUPressure = nil, want it on this machine")
		}
		checkRealLimits(t, g)
		d, err := g.Details()
		must(t, err)
		if len(d.Processes) != 1 || d.Processes[0] != pid {
			t.Errorf("Processes = %v, want [%d]", d.Processes, pid)
		}
	})
	if n := openFiles(t); n != before {
		t.Errorf("%d files are open, want %d as before", n, before)
	}
	if now := tree.spare.Load(); now != spare {
		t.Errorf("%d files may be kept open, want %d", now, spare)
	}
}

func checkRealLimits(t *testing.T, g *Group) {
	t.Helper()
	must(t, g.Update(&specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Shares: new(uint64(512)), Quota: new(int64(90000)), Period: new(uint64(100000))},
		Memory: &specs.LinuxMemory{Limit: new(int64(64 << 20))},
	}))
	l, err := g.Limits()
	must(t, err)
	if g.places["cpu"].v2 && (l.CPUWeight != 59 || l.CPUShares == 0) || !g.places["cpu"].v2 && l.CPUShares != 512 {
		t.Errorf("CPUShares = %d, CPUWeight = %d, want 512 shares on v1, weight 59 on v2", l.CPUShares, l.CPUWeight)
	}
	if l.CPUQuota != 90000 || l.CPUPeriod != 100000 || l.Memory != 64<<20 {
		t.Errorf("Limits = %+v, want CPUQuota 90000, CPUPeriod 100000, Memory %d", l, 64<<20)
	}
	err = g.Update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "4000"}})
	if !errdefs.IsInvalidArgument(err) {
		t.Errorf("Update to a CPU that does not exist: error %v, want ErrInvalidArgument", err)
	}
}

// TestRealGroupGoes: files that were open when their group was removed say that it is not found.
func TestRealGroupGoes(t *testing.T) {
	tree, err := Find()
	must(t, err)
	name := fmt.Sprintf("poddtest-gone-%d", os.Getpid())
	var kept, reopened *Group
	t.Run("alive", func(t *testing.T) {
		pid := realGroup(t, tree, name)
		kept, err = tree.Of(pid, name)
		must(t, err)
		tree.spare.Store(0) // the second group's files are opened for each reading
		reopened, err = tree.Of(pid, name)
		must(t, err)
		for _, g := range []*Group{kept, reopened} {
			_, err := g.Read()
			must(t, err)
		}
	})
	for name, g := range map[string]*Group{"kept": kept, "reopened": reopened} {
		if _, err := g.Read(); !errdefs.IsNotFound(err) {
			t.Errorf("%s: Read: error %v, want ErrNotFound", name, err)
		}
		if _, err := g.Processes(); !errdefs.IsNotFound(err) {
			t.Errorf("%s: Processes: error %v, want ErrNotFound", name, err)
		}
		if err := g.Update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: new(uint64(2))}}); !errdefs.IsNotFound(err) {
			t.Errorf("%s: Update: error %v, want ErrNotFound", name, err)
		}
		g.Close()
		if _, err := g.Read(); !errdefs.IsNotFound(err) {
			t.Errorf("%s: Read after Close: error %v, want ErrNotFound", name, err)
		}
	}
}

// TestCloseWhileReading: no reading may use a number that another file has by now.
func TestCloseWhileReading(t *testing.T) {
	before := openFiles(t)
	tree := treeV1(testdata(t, "v1"))
	tree.spare.Store(1000)
	for range 50 {
		g, err := tree.At(group)
		must(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					u, err := g.Read()
					if errdefs.IsNotFound(err) {
						return
					}
					if err != nil || u.CPU.Total != 1234567890 {
						t.Errorf("Read = CPU %+v, %v, want Total 1234567890", u.CPU, err)
						return
					}
				}
			})
		}
		runtime.Gosched()
		g.Close()
		g.Close()
		wg.Wait()
	}
	if n := openFiles(t); n != before {
		t.Errorf("%d files are open, want %d as before", n, before)
	}
	if spare := tree.spare.Load(); spare != 1000 {
		t.Errorf("%d files may be kept open, want 1000", spare)
	}
}

func TestFewFilesAreKept(t *testing.T) {
	tree := treeV1(testdata(t, "v1"))
	tree.spare.Store(3)
	before := openFiles(t)
	for range 5 {
		g, err := tree.At(group)
		g = open(t, g, err)
		if u, err := g.Read(); err != nil || u.CPU.Total != 1234567890 || u.Pids.Current != 5 {
			t.Fatalf("Read = %+v, %v, want CPU.Total 1234567890 and Pids.Current 5", u, err)
		}
	}
	if n := openFiles(t); n != before+3 {
		t.Errorf("%d files are open, want %d", n, before+3)
	}
}

// cpuTime is what the process has used so far: on a busy machine the time on the wall says little.
func cpuTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure runs f and reports the CPU time of one call.
func measure(b *testing.B, f func() error) {
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime()-start).Microseconds())/float64(b.N), "cpu-us/op")
}

func BenchmarkRead(b *testing.B) {
	tree, err := Find()
	if err != nil {
		b.Fatal(err)
	}
	for name, keep := range map[string]int64{"kept": 1000, "reopened": 0} {
		b.Run(name, func(b *testing.B) {
			group := fmt.Sprintf("poddbench-%d", os.Getpid())
			pid := realGroup(b, tree, group)
			tree.spare.Store(keep)
			g, err := tree.Of(pid, group)
			if err != nil {
				b.Fatal(err)
			}
			defer g.Close()
			measure(b, func() error { _, err := g.Read(); return err })
		})
	}
	b.Run("details", func(b *testing.B) {
		group := fmt.Sprintf("poddbench-%d", os.Getpid())
		pid := realGroup(b, tree, group)
		g, err := tree.Of(pid, group)
		if err != nil {
			b.Fatal(err)
		}
		defer g.Close()
		measure(b, func() error { _, err := g.Details(); return err })
	})
}

// BenchmarkEnterCgroup measures how long a process waits that enters a cgroup, 10 ms after Prime and without it.
func BenchmarkEnterCgroup(b *testing.B) {
	tree, err := Find()
	must(b, err)
	for name, before := range map[string]func(){"cold": func() {}, "primed": tree.Prime} {
		b.Run(name, func(b *testing.B) {
			if os.Geteuid() != 0 {
				b.Skip("needs root: it enters cgroups")
			}
			for b.Loop() {
				b.StopTimer()
				time.Sleep(100 * time.Millisecond) // the kernel waits for a grace period again
				before()
				time.Sleep(10 * time.Millisecond)
				b.StartTimer()
				tree.Prime() // what a runtime does: a write to cgroup.procs
			}
		})
	}
}
