package checks

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestMachine checks the conditions that the other checks need.
func TestMachine(t *testing.T) {
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Errorf("type of /sys/fs/cgroup = %#x, %v, want cgroup2, %#x", fs.Type, err, unix.CGROUP2_SUPER_MAGIC)
	}
	if got := read(t, "/proc/1/comm"); got != "systemd" {
		t.Errorf("process 1 = %q, want systemd", got)
	}
	if got := read(t, "/sys/module/apparmor/parameters/enabled"); got != "Y" {
		t.Errorf("AppArmor enabled = %q, want Y", got)
	}
}

func TestPoddRunsUnderItsUnit(t *testing.T) {
	k := newKubelet(t)
	pid := show(t, "podd.service", "MainPID")
	if exe, err := os.Readlink("/proc/" + pid + "/exe"); err != nil || !strings.HasSuffix(exe, "/podd") {
		t.Errorf("executable of the unit's process %s = %q, %v, want podd", pid, exe, err)
	}
	if got := cgroupOf(t, pid); got != "/system.slice/podd.service" {
		t.Errorf("podd's cgroup = %s, want /system.slice/podd.service", got)
	}
	conf, err := k.runtime.RuntimeConfig(t.Context(), &cri.RuntimeConfigRequest{})
	k.ok("RuntimeConfig", err)
	if got := conf.GetLinux().GetCgroupDriver(); got != cri.CgroupDriver_SYSTEMD {
		t.Errorf("cgroup driver = %v, want SYSTEMD", got)
	}
	st, err := k.runtime.Status(t.Context(), &cri.StatusRequest{})
	k.ok("Status", err)
	for _, c := range st.Status.Conditions {
		if c.Type == "HandlerReady/gvisor" { // configured by default, but not installed here
			continue
		}
		if !c.Status {
			t.Errorf("condition %s = false, want true: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
}
