package cgroups

import (
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// parseMounts is mounted for another mountinfo.
func parseMounts(mountinfoFile io.Reader) (hierarchies, error) {
	mounts, err := mountinfo.GetMountsFromReader(mountinfoFile, cgroupMounts())
	return byController(mounts), err
}

func TestMounts(t *testing.T) {
	h, err := parseMounts(strings.NewReader(`22 27 0:21 / /proc rw,relatime - proc proc rw
29 20 8:1 / / rw - ext4 /dev/vda rw
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 20 0:29 / /elsewhere rw - cgroup none rw,cpu,cpuacct
35 31 0:32 /docker/abc /nested/memory rw,relatime - cgroup cgroup rw,memory
36 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
37 31 0:32 /docker/abc /nested/again rw,relatime - cgroup cgroup rw,memory
38 31 0:33 /docker/x /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/systemd/agent,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
`))
	must(t, err)
	want := hierarchies{
		"cpu": {"/sys/fs/cgroup/cpu,cpuacct", "/"}, "cpuacct": {"/sys/fs/cgroup/cpu,cpuacct", "/"},
		"memory": {"/sys/fs/cgroup/memory", "/"}, "pids": {"/sys/fs/cgroup/pids", "/docker/x"},
		"name=systemd": {"/sys/fs/cgroup/systemd", "/"}, unified: {"/sys/fs/cgroup/unified", "/"},
	}
	if !maps.Equal(h, want) {
		t.Errorf("hierarchies = %v, want %v", h, want)
	}
	if _, err := parseMounts(strings.NewReader("short line - cgroup2\n")); err == nil {
		t.Error("parse of a malformed line: no error")
	}
	for _, tt := range []struct {
		controller, path, want string
		ok                     bool
	}{
		{"cpu", "/pod/c", "/sys/fs/cgroup/cpu,cpuacct/pod/c", true},
		{"cpuacct", "/", "/sys/fs/cgroup/cpu,cpuacct", true},
		{"pids", "/docker/x/c", "/sys/fs/cgroup/pids/c", true},
		{"pids", "/docker/x", "/sys/fs/cgroup/pids", true},
		{"pids", "/docker/xy", "", false},
		{"pids", "/pod", "", false},
		{unified, "/pod", "/sys/fs/cgroup/unified/pod", true},
		{"devices", "/pod", "", false},
	} {
		if got, ok := h[tt.controller].directory(tt.path); got != tt.want || ok != tt.ok {
			t.Errorf("directory of %s in %q = %q, %v, want %q, %v", tt.path, tt.controller, got, ok, tt.want, tt.ok)
		}
	}
}

// TestMountEscapes: the kernel writes spaces, tabs, newlines and backslashes of paths in octal.
func TestMountEscapes(t *testing.T) {
	h, err := parseMounts(strings.NewReader(
		`36 31 0:32 /my\040root /mnt/my\040memory\134\011x rw,relatime - cgroup cgroup rw,memory` + "\n" +
			`41 31 0:38 / /mnt/a\040b rw,relatime - cgroup2 cgroup2 rw` + "\n"))
	must(t, err)
	for controller, want := range map[string]string{"memory": "/mnt/my memory\\\tx/pod", unified: "/mnt/a b/my root/pod"} {
		if got, ok := h[controller].directory("/my root/pod"); got != want || !ok {
			t.Errorf("directory in %q = %q, %v, want %q", controller, got, ok, want)
		}
	}
}
