package runc

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReadCgroups(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cgroup")
	write(t, file, "4:cpu,cpuacct:/a\n3:memory:/b:c\n2:name=systemd:/d\nbroken\n0::/e\n")
	got, err := readCgroups(file)
	if err != nil {
		t.Fatal(err)
	}
	for controller, want := range map[string]string{"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "name=systemd": "/d", "": "/e"} {
		if got[controller] != want {
			t.Errorf("%q: %q, want %q", controller, got[controller], want)
		}
	}
	if len(got) != 5 {
		t.Errorf("%v", got)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAddCgroupMount(t *testing.T) {
	mounts := map[string]cgroupMount{}
	for _, line := range []string{
		"25 20 0:20 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup none rw,cpu,cpuacct",
		"26 20 0:21 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
		"27 20 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate",
		"28 20 0:20 / /elsewhere rw - cgroup none rw,cpu,cpuacct",
		"29 20 8:1 / / rw - ext4 /dev/vda rw",
		"nonsense", "", "1 2 3 - cgroup",
	} {
		addCgroupMount(mounts, line)
	}
	for _, tt := range []struct {
		controller, path, want string
		ok                     bool
	}{
		{"cpu", "/pod/c", "/sys/fs/cgroup/cpu/pod/c", true},
		{"cpuacct", "/", "/sys/fs/cgroup/cpu", true},
		{"memory", "/docker/x/c", "/sys/fs/cgroup/memory/c", true},
		{"memory", "/docker/xy", "", false},
		{"memory", "/pod", "", false},
		{"", "/pod", "/sys/fs/cgroup/unified/pod", true},
	} {
		got, ok := mounts[tt.controller].directory(tt.path)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q %s: %q, %v", tt.controller, tt.path, got, ok)
		}
	}
	if _, ok := mounts["ext4"]; ok {
		t.Error("a filesystem is taken for a cgroup")
	}
}

// TestNeverOurOwn: what the daemon lives in is never a container's to kill.
func TestNeverOurOwn(t *testing.T) {
	if own := cgroupsOf(os.Getpid()); len(own) != 0 {
		t.Errorf("the daemon's cgroups are taken for a container's: %v", own)
	}
	for _, path := range []string{"", "/", "..", "/../..", "."} {
		if own := cgroupsAt(path); len(own) != 0 {
			t.Errorf("cgroupsPath %q: %v", path, own)
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
		if got := (cgroups{"freezer": v1}).frozen(); got != tt.want {
			t.Errorf("v1 %q: %v", tt.v1, got)
		}
		if got := (cgroups{"": v2}).frozen(); got != tt.want {
			t.Errorf("v2 %q: %v", tt.v2, got)
		}
	}
	if (cgroups{}).frozen() {
		t.Error("no cgroup is frozen")
	}
}
