package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// The profiles of critest, in the OCI's format, and one in Docker's.
const (
	ociProfile = `{"defaultAction":"SCMP_ACT_ALLOW",
		"syscalls":[{"names":["chmod","fchmodat"],"action":"SCMP_ACT_ERRNO"}]}`
	dockerProfile = `{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":1,"archMap":[{"architecture":"SCMP_ARCH_X86_64"}],
		"syscalls":[{"name":"read","action":"SCMP_ACT_ALLOW"},
			{"names":["mount"],"action":"SCMP_ACT_ALLOW","includes":{"caps":["CAP_SYS_ADMIN"]}}]}`
)

func ref(path string) *cri.SecurityProfile {
	return &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: path}
}

func TestSeccompProfile(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "profiles"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "profiles/oci.json"), ociProfile)
	write(t, filepath.Join(root, "docker.json"), dockerProfile)
	for _, path := range []string{"profiles/oci.json", filepath.Join(root, "profiles/oci.json")} {
		p, err := SeccompProfile(ref(path), root)
		if err != nil || p.DefaultAction != specs.ActAllow || len(p.Syscalls) != 1 || p.Syscalls[0].Names[1] != "fchmodat" {
			t.Errorf("SeccompProfile(%s) = %+v, %v, want the OCI profile", path, p, err)
		}
	}
	p, err := SeccompProfile(ref("docker.json"), root)
	if err != nil || len(p.ArchMap) != 1 || p.Syscalls[1].Includes.Caps[0] != "CAP_SYS_ADMIN" || *p.DefaultErrnoRet != 1 {
		t.Errorf("SeccompProfile in Docker's format = %+v, %v, want its conditions too", p, err)
	}
	for _, other := range []*cri.SecurityProfile{nil, {}, {ProfileType: cri.SecurityProfile_Unconfined}} {
		if p, err := SeccompProfile(other, root); p != nil || err != nil {
			t.Errorf("SeccompProfile(%v) = %v, %v, want nil", other, p, err)
		}
	}
}

func TestSeccompProfileErrors(t *testing.T) {
	root := t.TempDir()
	inv := errdefs.ErrInvalidArgument
	if err := errors.Join(
		os.Mkdir(filepath.Join(root, "dir"), 0o755), unix.Mkfifo(filepath.Join(root, "fifo"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "sparse"), "")
	if err := os.Truncate(filepath.Join(root, "sparse"), 10<<30); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]error{
		"none": errdefs.ErrNotFound, "dir": inv, "fifo": inv, "sparse": inv, "../x": inv, "a/../../x": inv, "": inv,
	} {
		if _, err := SeccompProfile(ref(path), root); !errors.Is(err, kind) {
			t.Errorf("SeccompProfile(%q): error %v, want %v", path, err, kind)
		}
	}
	allow := func(rest string) string { return `{"defaultAction":"SCMP_ACT_ALLOW",` + rest + "}" }
	for content, says := range map[string]string{
		"":                                   "JSON",
		"[]":                                 "JSON",
		`{"defaultAction":1}`:                "JSON",
		`{}`:                                 "defaultAction",
		`{"defaultAction":"SCMP_ACT_MAYBE"}`: "SCMP_ACT_MAYBE",
		allow(`"architectures":["SCMP_ARCH_X86"],"archMap":[{"architecture":"SCMP_ARCH_X86"}]`): "both",
		allow(`"syscalls":[null]`):                                               "null",
		allow(`"syscalls":[{"names":["read"]}]`):                                 "action",
		allow(`"syscalls":[{"action":"SCMP_ACT_LOG"}]`):                          "names",
		allow(`"syscalls":[{"name":"a","names":["b"],"action":"SCMP_ACT_LOG"}]`): "names",
	} {
		write(t, filepath.Join(root, "p.json"), content)
		_, err := SeccompProfile(ref("p.json"), root)
		if !errors.Is(err, inv) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "p.json") {
			t.Errorf("profile %s: error %v, want one with %q", content, err, says)
		}
	}
}

// FuzzSeccompProfile: a profile that is accepted can be made into a container's.
func FuzzSeccompProfile(f *testing.F) {
	f.Add([]byte(ociProfile))
	f.Add([]byte(dockerProfile))
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_LOG",
		"syscalls":[{"names":[""],"action":"SCMP_ACT_NOTIFY","excludes":{"minKernel":"4.8"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProfile(data)
		if err != nil {
			if !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("error %v, want ErrInvalidArgument", err)
			}
			return
		}
		s, _, err := spec.Container(spec.Input{
			Rootfs: "/rootfs", Seccomp: p, Host: spec.Facts{Seccomp: true, Arch: "amd64", Kernel: spec.KernelVersion{Major: 6}},
			Config: &cri.ContainerConfig{Command: []string{"/x"}, Linux: &cri.LinuxContainerConfig{
				SecurityContext: &cri.LinuxContainerSecurityContext{Seccomp: ref("/p")},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if s.Linux.Seccomp.DefaultAction != p.DefaultAction || len(s.Linux.Seccomp.Syscalls) > len(p.Syscalls) {
			t.Errorf("%+v became %+v", p, s.Linux.Seccomp)
		}
		for _, rule := range s.Linux.Seccomp.Syscalls {
			if len(rule.Names) == 0 {
				t.Error("a rule of the spec has no system calls")
			}
		}
	})
}
