package vmm

import (
	"slices"
	"strings"
	"testing"
)

func testConfig() Config {
	return Config{
		Kernel: "/kernel", Initrd: "/initrd", Shared: "/shared", Temp: "/tmp", MemoryDir: "/dev/shm", Memory: 300, CPUs: 1,
		Limits: Limits{Memory: 300 + 3*memoryBlock - 1, CPUs: 2},
		NICs:   []NIC{{Tap: "tap0", MAC: "02:00:00:00:00:01"}, {Tap: "tap1", MAC: "02:00:00:00:00:02"}},
	}
}

func TestUMLArguments(t *testing.T) {
	got := umlArguments(testConfig(), "/tmp/s")
	for _, want := range []string{
		"mem=300M", "initrd=/initrd", "ssl0=fd:3", "virtio_uml.device=/tmp/s:26", "hostfs=/nowhere",
		"vec0:transport=tap,ifname=tap0,mac=02:00:00:00:00:01", "vec1:transport=tap,ifname=tap1,mac=02:00:00:00:00:02",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("arguments = %q, want %q in them", got, want)
		}
	}
}

// TestQEMUArguments: QEMU is confined, gets its files by descriptor, and emulates only without KVM.
func TestQEMUArguments(t *testing.T) {
	c := testConfig()
	for _, kvm := range []bool{true, false} {
		c.KVM = kvm
		got := strings.Join(qemuArguments(c, qemuFiles{share: 3, line: 4, taps: []int{5, 6}, control: 7}), " ")
		for _, want := range []string{
			"-sandbox on,", "-nodefaults", "-m 300M,maxmem=556M", "-smp 1,maxcpus=2", "socket,id=control,fd=7",
			"id=reserve,size=256M", "socket,id=fs0,fd=3", "socket,id=agent,fd=4", "tap,id=n0,fd=5",
			"tap,id=n1,fd=6", "mac=02:00:00:00:00:02", "-append console=ttyS0",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("arguments = %q, want %q in them", got, want)
			}
		}
		if strings.Contains(got, "-accel kvm -cpu host") != kvm || strings.Contains(got, "-accel tcg") == kvm {
			t.Errorf("with KVM %v: arguments = %q", kvm, got)
		}
	}
}

func TestVirtiofsd(t *testing.T) {
	for file, want := range map[string]string{
		"/virtiofsd":              "--announce-submounts",
		"/usr/libexec/virtiofsd":  "--no-announce-submounts",
		"/usr/lib/qemu/virtiofsd": "source=/shared,cache=auto,sandbox=chroot,xattr,posix_acl",
	} {
		got := virtiofsd(func(f string) bool { return f == file }, "/shared", 100)
		if got[0] != file || !slices.Contains(got, want) || !slices.Contains(got, "--fd=3") ||
			!slices.Contains(got, "--rlimit-nofile=100") {
			t.Errorf("virtiofsd = %q, want %s with %s", got, file, want)
		}
	}
}
