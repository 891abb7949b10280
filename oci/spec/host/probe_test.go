package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/test/userns"
)

// TestProbe compares with what the machine says in other words.
func TestProbe(t *testing.T) {
	f, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if f.Arch != runtime.GOARCH || len(f.Devices) == 0 {
		t.Errorf("%+v", f)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if set := bounding(t, status); set != len(f.Capabilities) || !strings.HasPrefix(f.Capabilities[0], "CAP_") {
		t.Errorf("%d capabilities, /proc says %d: %q", len(f.Capabilities), set, f.Capabilities)
	}
	if f.Seccomp != bytes.Contains(status, []byte("\nSeccomp:")) {
		t.Errorf("seccomp %v, /proc/self/status says otherwise", f.Seccomp)
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil || !strings.HasPrefix(string(release), strconv.Itoa(f.Kernel.Major)+"."+strconv.Itoa(f.Kernel.Minor)) {
		t.Errorf("kernel %+v, release %s", f.Kernel, release)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); (err == nil) != f.CgroupV2 {
		t.Errorf("CgroupV2 = %v, stat of cgroup.controllers: %v", f.CgroupV2, err)
	}
	for _, size := range f.HugepageSizes {
		if !strings.HasSuffix(size, "B") {
			t.Errorf("huge page size = %q, want one such as 2MB", size)
		}
	}
}

func bounding(t *testing.T, status []byte) int {
	t.Helper()
	for line := range strings.Lines(string(status)) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for ; bits > 0; bits &= bits - 1 {
				n++
			}
			return n
		}
	}
	t.Fatal("/proc/self/status has no CapBnd")
	return 0
}

// TestOOMFloor: the floor can be set, and where podd may not go lower nothing below it can.
func TestOOMFloor(t *testing.T) {
	var f spec.Facts
	if err := oomScoreAdjMin(&f); err != nil {
		t.Fatal(err)
	}
	set := func(v int) error {
		// In a child, so that the test's own process stays what it is.
		return exec.Command("sh", "-c", "echo "+strconv.Itoa(v)+" > /proc/self/oom_score_adj").Run()
	}
	if err := set(f.OOMScoreAdjMin); err != nil {
		t.Errorf("OOMScoreAdjMin = %d, setting it: %v", f.OOMScoreAdjMin, err)
	}
	if f.OOMScoreAdjMin > -1000 && set(f.OOMScoreAdjMin-1) == nil {
		t.Errorf("oom_score_adj %d can be set, want OOMScoreAdjMin to be the lowest", f.OOMScoreAdjMin-1)
	}
}

func TestPageSize(t *testing.T) {
	for kb, want := range map[uint64]string{64: "64KB", 2048: "2MB", 32768: "32MB", 1 << 20: "1GB", 16 << 20: "16GB"} {
		if got := pageSize(kb); got != want {
			t.Errorf("pageSize(%d) = %s, want %s", kb, got, want)
		}
	}
}

func TestAppArmorLoaded(t *testing.T) {
	const list = "/usr/bin/man (enforce)\npodd-default (enforce)\nname with (brackets) (complain)\n"
	for name, want := range map[string]bool{
		"podd-default": true, "/usr/bin/man": true, "name with (brackets)": true, "name with": false, "podd": false,
		"": false,
	} {
		if loaded(list, name) != want {
			t.Errorf("loaded(%q) = %v, want %v", name, !want, want)
		}
	}
}

// TestSecurityModulesOff runs on the machines that have neither, which is where nothing must be claimed.
func TestSecurityModulesOff(t *testing.T) {
	if !appArmorOn() {
		if name, err := LoadAppArmor(context.Background()); name != "" || err != nil {
			t.Errorf("%q, %v", name, err)
		}
		if err := CheckAppArmor("x"); !errors.Is(err, errdefs.ErrFailedPrecondition) {
			t.Error(err)
		}
	}
	if f, _ := Probe(); !f.SELinux {
		if l, err := Labels(&cri.SELinuxOption{Level: "s0"}); l != (spec.Labels{}) || err != nil {
			t.Errorf("%+v, %v", l, err)
		}
		ReleaseLabels(spec.Labels{})
	}
}

func TestLabelOptions(t *testing.T) {
	got := labelOptions(&cri.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0:c1,c2"})
	if want := []string{"user:u", "role:r", "type:t", "level:s0:c1,c2"}; !slices.Equal(got, want) {
		t.Errorf("labelOptions = %q, want %q", got, want)
	}
	if got := labelOptions(nil); got != nil {
		t.Errorf("labelOptions(nil) = %q, want nil", got)
	}
}

// TestLimitsInUserNamespace: root of a user namespace has CAP_SYS_RESOURCE, and still cannot raise anything.
func TestLimitsInUserNamespace(t *testing.T) {
	if !userns.Inside(t) {
		return
	}
	var f spec.Facts
	if err := errors.Join(oomScoreAdjMin(&f), rlimitMax(&f)); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil || strings.TrimSpace(string(own)) != strconv.Itoa(f.OOMScoreAdjMin) {
		t.Errorf("OOMScoreAdjMin = %d, want podd's own %s, %v", f.OOMScoreAdjMin, own, err)
	}
	if _, known := f.RlimitMax["RLIMIT_CORE"]; !known {
		t.Errorf("RlimitMax = %v, want podd's own limits", f.RlimitMax)
	}
}
