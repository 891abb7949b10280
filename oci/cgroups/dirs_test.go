package cgroups

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

func TestMembership(t *testing.T) {
	proc := t.TempDir()
	if _, err := membership(proc); !errdefs.IsNotFound(err) {
		t.Errorf("membership of a process that is gone: error %v, want ErrNotFound", err)
	}
	for text, want := range map[string]map[string]string{
		"4:cpu,cpuacct:/a\n3:memory:/b:c\n2:name=systemd:/d\n0::/e\n": {
			"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "name=systemd": "/d", unified: "/e",
		},
		"3:memory:/m\n": {"memory": "/m"},
		"0::/\n":        {unified: "/"},
	} {
		write(t, filepath.Join(proc, "cgroup"), text)
		got, err := membership(proc)
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("membership from %q = %v, %v, want %v", text, got, err, want)
		}
	}
}

// TestNeverOurOwn: the cgroups that the daemon is in are never those of a container, which may be killed.
func TestNeverOurOwn(t *testing.T) {
	if own := DirsOf(os.Getpid()); len(own) != 0 {
		t.Errorf("DirsOf this process = %v, want none", own)
	}
	for _, path := range []string{"", "/", "..", "/../..", "."} {
		if own := DirsAt(path); len(own) != 0 {
			t.Errorf("DirsAt(%q) = %v, want none", path, own)
		}
	}
}

func TestAllAt(t *testing.T) {
	for _, tt := range []struct {
		d     Dirs
		group string
		want  bool
	}{
		{Dirs{"pids": "/sys/fs/cgroup/pids/pod/c", "cpu": "/sys/fs/cgroup/cpu/pod/c"}, "/pod/c", true},
		{Dirs{unified: "/sys/fs/cgroup/pod/c"}, "/pod/c", true},
		{Dirs{unified: "/sys/fs/cgroup/pod/c/container"}, "/pod/c", false},
		{Dirs{"pids": "/sys/fs/cgroup/pids/pod/c", "cpu": "/sys/fs/cgroup/cpu/pod/c/below"}, "/pod/c", false},
		{Dirs{unified: "/sys/fs/cgroup/apod/c"}, "/pod/c", false},
		{Dirs{unified: "/sys/fs/cgroup/"}, "/", false},
	} {
		if got := tt.d.AllAt(tt.group); got != tt.want {
			t.Errorf("%v.AllAt(%s) = %v, want %v", tt.d, tt.group, got, tt.want)
		}
	}
}

func TestFrozen(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	for _, tt := range []struct {
		v1, v2 string
		want   bool
	}{
		{"THAWED\n", "0\n", false}, {"FROZEN\n", "1\n", true}, {"FREEZING\n", "1\n", true},
	} {
		write(t, filepath.Join(v1, "freezer.state"), tt.v1)
		write(t, filepath.Join(v2, "cgroup.freeze"), tt.v2)
		if got := (Dirs{"freezer": v1}).Frozen(); got != tt.want {
			t.Errorf("Frozen on v1 with state %q = %v, want %v", tt.v1, got, tt.want)
		}
		if got := (Dirs{unified: v2}).Frozen(); got != tt.want {
			t.Errorf("Frozen on v2 with state %q = %v, want %v", tt.v2, got, tt.want)
		}
	}
	if (Dirs{}).Frozen() {
		t.Error("Frozen without a cgroup = true, want false")
	}
}

func TestOOMKills(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	write(t, filepath.Join(v1, "memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
	write(t, filepath.Join(v2, "memory.events"), "low 0\nhigh 0\nmax 9\noom 5\noom_kill 2\noom_group_kill 0\n")
	for name, tt := range map[string]struct {
		d    Dirs
		want uint64
		ok   bool
	}{
		"v1":     {Dirs{"memory": v1}, 3, true},
		"v2":     {Dirs{unified: v2}, 2, true},
		"hybrid": {Dirs{"memory": v1, unified: v2}, 3, true},
		"gone":   {Dirs{"memory": "/no/such"}, 0, false},
		"none":   {nil, 0, false},
	} {
		if got, ok := tt.d.OOMKills(); got != tt.want || ok != tt.ok {
			t.Errorf("%s: OOMKills = %d, %v, want %d, %v", name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestForksRefused(t *testing.T) {
	v1, v2 := t.TempDir(), t.TempDir()
	write(t, filepath.Join(v1, "pids.events"), "max 3\n")
	write(t, filepath.Join(v2, "pids.events"), "max 2\nmax.imposed 1\n")
	for want, d := range map[uint64]Dirs{3: {"pids": v1, unified: v2}, 2: {unified: v2}, 0: {"pids": "/no/such"}} {
		if got := d.ForksRefused(); got != want {
			t.Errorf("%v: ForksRefused = %d, want %d", d, got, want)
		}
	}
	t.Chdir(v1)
	if got := (Dirs{}).ForksRefused(); got != 0 {
		t.Errorf("ForksRefused without a cgroup = %d, want 0", got)
	}
}

// TestJSON: drivers write both types to their records, which earlier and later versions of podd read.
func TestJSON(t *testing.T) {
	for want, v := range map[string]any{
		`{"":"/a","pids":"/b"}`:    Dirs{unified: "/a", "pids": "/b"},
		`{"cgroup":"/p","lost":3}`: OOMBaseline{Cgroup: "/p", Lost: 3},
		`{}`:                       OOMBaseline{},
	} {
		if got, err := json.Marshal(v); err != nil || string(got) != want {
			t.Errorf("JSON of %#v = %s, %v, want %s", v, got, err, want)
		}
	}
}

// TestAllDirsFound: remembered hierarchies do not serve a process with a group that is not below them.
func TestAllDirsFound(t *testing.T) {
	h, err := mounted()
	must(t, err)
	theirs, ours := map[string]string{}, map[string]string{}
	for controller := range h {
		theirs[controller], ours[controller] = "/pod/x", "/"
	}
	elsewhere := hierarchies{}
	for controller := range h {
		elsewhere[controller] = mount{dir: t.TempDir(), root: "/"}
	}
	if _, all := elsewhere.dirsOf(theirs, ours); all {
		t.Error("groups were found that do not exist")
	}
	for _, m := range elsewhere {
		must(t, os.MkdirAll(filepath.Join(m.dir, "pod/x"), 0o755))
	}
	if own, all := elsewhere.dirsOf(theirs, ours); !all || len(own) != len(h) {
		t.Errorf("dirsOf = %v, %v, want %d", own, all, len(h))
	}
	for controller := range h {
		delete(elsewhere, controller)
		break
	}
	if _, all := elsewhere.dirsOf(theirs, ours); all {
		t.Error("a hierarchy that is not remembered was not missed")
	}
}

// BenchmarkDirsOf and BenchmarkDirsOfFirst have as many mounts as a node with a thousand pods.
func BenchmarkDirsOf(b *testing.B) {
	manyMounts(b)
	for b.Loop() {
		DirsOf(os.Getpid())
	}
}

func BenchmarkDirsOfFirst(b *testing.B) {
	manyMounts(b)
	for b.Loop() {
		remembered.Store(nil)
		DirsOf(os.Getpid())
	}
}

// manyMounts makes mounts for the calling thread alone, which ends with its goroutine.
func manyMounts(b *testing.B) {
	runtime.LockOSThread()
	must(b, unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS))
	must(b, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	dir := b.TempDir()
	for range 5000 {
		must(b, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
	}
	b.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
}
