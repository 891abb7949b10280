package files

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// shmSize is the default in bytes.
const shmSize = 64 << 20

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFiles needs root. Nothing may be mounted at the end.
func newFiles(t *testing.T) Files {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	dir := t.TempDir()
	t.Cleanup(func() {
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil || len(left) > 0 {
			t.Errorf("mounts at the end = %v, %v, want none", left, err)
		}
	})
	return Files{Layout: record.Layout{Root: dir + "/root", Run: dir + "/run"}, Mounter: Kernel{}, ShmSize: shmSize}
}

func remove(t *testing.T, f Files, pod string) {
	t.Helper()
	must(t, f.Unmount(t.Context(), pod))
	must(t, f.Remove(pod))
}

func TestFiles(t *testing.T) {
	f := newFiles(t)
	config := &cri.PodSandboxConfig{DnsConfig: &cri.DNSConfig{
		Servers: []string{"192.0.2.53"}, Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"},
	}}
	must(t, f.Write(t.Context(), "p", Request{
		Config: config, Hostname: "web", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
	}))
	defer remove(t, f, "p")
	paths := f.Paths("p", config)
	for path, want := range map[string]string{
		paths.ResolvConf: "search a.example b.example\nnameserver 192.0.2.53\noptions ndots:5\n",
		paths.Hostname:   "web\n",
		paths.Hosts: "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"192.0.2.7\tweb\n",
	} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v, want %q", path, got, err, want)
		}
	}
	if missing := f.Missing("p", config); missing != nil {
		t.Errorf("Missing = %q, want none", missing)
	}
	must(t, os.Remove(paths.Hosts))
	must(t, f.Mounter.Unmount(t.Context(), paths.Shm))
	must(t, os.Remove(paths.Shm))
	if missing := f.Missing("p", config); !slices.Equal(missing, []string{"hosts", "shm"}) {
		t.Errorf("Missing = %q, want hosts and shm", missing)
	}
}

func TestSizes(t *testing.T) {
	f := newFiles(t)
	big := &cri.DNSConfig{Searches: []string{strings.Repeat("x", 3<<20)}} // more than the limit: nothing is cut off
	config := &cri.PodSandboxConfig{DnsConfig: big}
	must(t, f.Write(t.Context(), "p", Request{Config: config, Hostname: "web"}))
	defer remove(t, f, "p")
	paths := f.Paths("p", config)
	for path, limit := range map[string]int{paths.Hostname: etcSize, filepath.Join(paths.Shm, "x"): shmSize} {
		err := os.WriteFile(path, bytes.Repeat([]byte("x"), limit+64<<10), 0o600)
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("write of more than %d bytes to %s: %v, want ENOSPC", limit, path, err)
		}
	}
	for _, dir := range []string{filepath.Dir(paths.Hostname), paths.Shm} {
		var st syscall.Statfs_t
		must(t, syscall.Statfs(dir, &st))
		const want = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC
		if st.Flags&want != want {
			t.Errorf("flags of %s = %#x, want nosuid, nodev and noexec", dir, st.Flags)
		}
	}
}
