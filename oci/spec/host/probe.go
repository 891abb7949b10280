package host

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/capability"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/selinux/go-selinux"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/spec"
)

// Probe reads what this machine supports, as far as config.json depends on it. Call it once at start: only Devices
// change later, see HostDevices. It does not load the default AppArmor profile, see LoadAppArmor.
func Probe() (spec.Facts, error) {
	f := spec.Facts{
		Arch: runtime.GOARCH, NoX32: noX32(),
		SELinux: selinux.GetEnabled(), AppArmor: appArmorOn(), Seccomp: seccompOn(),
	}
	for _, part := range []struct {
		what string
		do   func(*spec.Facts) error
	}{
		{"kernel version", kernel},
		{"capabilities", capabilities},
		{"oom_score_adj", oomScoreAdjMin},
		{"resource limits", rlimitMax},
		{"cgroups", cgroupSupport},
		{"huge pages", hugepages},
		{"devices", func(f *spec.Facts) (err error) { f.Devices, err = HostDevices(); return err }},
	} {
		if err := part.do(&f); err != nil {
			return f, fmt.Errorf("probe %s: %w", part.what, err)
		}
	}
	return f, nil
}

func kernel(f *spec.Facts) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	f.Hostname = unix.ByteSliceToString(u.Nodename[:])
	release := unix.ByteSliceToString(u.Release[:])
	if _, err := fmt.Sscanf(release, "%d.%d", &f.Kernel.Major, &f.Kernel.Minor); err != nil {
		return fmt.Errorf("release %q: %w", release, err)
	}
	return nil
}

// capabilities reads the bounding set: the most that a process gains at execve.
func capabilities(f *spec.Facts) error {
	all, err := capability.ListSupported()
	if err != nil {
		return err
	}
	for _, c := range all {
		held, err := capability.GetBound(c)
		if err != nil {
			return err
		}
		if held {
			f.Capabilities = append(f.Capabilities, "CAP_"+strings.ToUpper(c.String()))
		}
	}
	return nil
}

// oomScoreAdjMin reads the lowest oom_score_adj that podd may set: without CAP_SYS_RESOURCE its own (fs/proc/base.c).
func oomScoreAdjMin(f *spec.Facts) error {
	if mayRaise, err := holdsSysResource(); mayRaise || err != nil {
		f.OOMScoreAdjMin = -1000
		return err
	}
	data, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return err
	}
	f.OOMScoreAdjMin, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return err
}

// holdsSysResource reports whether podd may raise limits above its own. In a user namespace it may not, whatever its
// capabilities: the kernel asks for that of the initial one (fs/proc/base.c, kernel/sys.c).
func holdsSysResource() (bool, error) {
	if userns.RunningInUserNS() {
		return false, nil
	}
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	return err == nil && own.Get(capability.EFFECTIVE, capability.CAP_SYS_RESOURCE), err
}

// rlimitMax reads the hard limits that podd may set: without CAP_SYS_RESOURCE its own, and never more open files than
// fs.nr_open (kernel/sys.c).
func rlimitMax(f *spec.Facts) error {
	f.RlimitMax = map[string]uint64{}
	data, err := os.ReadFile("/proc/sys/fs/nr_open")
	if err != nil {
		return err
	}
	if f.RlimitMax["RLIMIT_NOFILE"], err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err != nil {
		return err
	}
	if mayRaise, err := holdsSysResource(); mayRaise || err != nil {
		return err
	}
	for name, resource := range map[string]int{
		"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_CORE": unix.RLIMIT_CORE, "RLIMIT_CPU": unix.RLIMIT_CPU,
		"RLIMIT_DATA": unix.RLIMIT_DATA, "RLIMIT_FSIZE": unix.RLIMIT_FSIZE, "RLIMIT_LOCKS": unix.RLIMIT_LOCKS,
		"RLIMIT_MEMLOCK": unix.RLIMIT_MEMLOCK, "RLIMIT_MSGQUEUE": unix.RLIMIT_MSGQUEUE, "RLIMIT_NICE": unix.RLIMIT_NICE,
		"RLIMIT_NOFILE": unix.RLIMIT_NOFILE, "RLIMIT_NPROC": unix.RLIMIT_NPROC, "RLIMIT_RSS": unix.RLIMIT_RSS,
		"RLIMIT_RTPRIO": unix.RLIMIT_RTPRIO, "RLIMIT_RTTIME": unix.RLIMIT_RTTIME,
		"RLIMIT_SIGPENDING": unix.RLIMIT_SIGPENDING, "RLIMIT_STACK": unix.RLIMIT_STACK,
	} {
		var own unix.Rlimit
		if err := unix.Getrlimit(resource, &own); err != nil {
			return fmt.Errorf("getrlimit %s: %w", name, err)
		}
		f.RlimitMax[name] = own.Max
	}
	return nil
}

func cgroupSupport(f *spec.Facts) error {
	c, err := cgroups.Probe()
	f.CgroupV2, f.Hugetlb, f.Swap = c.V2, c.Hugetlb, c.Swap
	return err
}

// hugepages lists the sizes in the notation of cgroup files: 64KB, 2MB, 1GB.
func hugepages(f *spec.Facts) error {
	dirs, err := os.ReadDir("/sys/kernel/mm/hugepages")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var sizes []uint64
	for _, d := range dirs {
		kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(d.Name(), "hugepages-"), "kB"), 10, 64)
		if err == nil {
			sizes = append(sizes, kb)
		}
	}
	slices.Sort(sizes)
	for _, kb := range sizes {
		f.HugepageSizes = append(f.HugepageSizes, pageSize(kb))
	}
	return nil
}

// pageSize returns the notation for a size in KiB, as in mm/hugetlb_cgroup.c.
func pageSize(kb uint64) string {
	switch {
	case kb >= 1<<20:
		return fmt.Sprintf("%dGB", kb>>20)
	case kb >= 1<<10:
		return fmt.Sprintf("%dMB", kb>>10)
	}
	return fmt.Sprintf("%dKB", kb)
}

// seccompOn requests a filter with a nil pointer: EFAULT means that the kernel supports filters.
func seccompOn() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0)
	return errno == unix.EFAULT
}

// noX32 reports whether the kernel is known to lack the x32 ABI, by a system call of it. A seccomp filter on podd
// itself may end the process for that, so with one it is not known.
func noX32() bool {
	const x32 = 0x40000000 // __X32_SYSCALL_BIT
	status, err := os.ReadFile("/proc/self/status")
	if runtime.GOARCH != "amd64" || err != nil || !bytes.Contains(status, []byte("\nSeccomp:\t0\n")) {
		return false
	}
	_, _, errno := unix.RawSyscall(x32|unix.SYS_GETPID, 0, 0, 0)
	return errno == unix.ENOSYS
}

func appArmorOn() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && bytes.HasPrefix(data, []byte("Y"))
}
