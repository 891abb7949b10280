package snapshot

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestCheckContainers: what a process was started with must be equal, what podd applies around it may differ.
func TestCheckContainers(t *testing.T) {
	m := manifest(t)
	for _, tt := range []struct {
		name   string
		change func(c *cri.ContainerConfig)
		want   string // words of the error, "" for none
	}{
		{"equal", func(c *cri.ContainerConfig) {}, ""},
		{"labels", func(c *cri.ContainerConfig) { c.Labels = map[string]string{"a": "b"} }, ""},
		{"annotations", func(c *cri.ContainerConfig) { c.Annotations = map[string]string{"a": "b"} }, ""},
		{"attempt", func(c *cri.ContainerConfig) { c.Metadata.Attempt = 3 }, ""},
		{"log", func(c *cri.ContainerConfig) { c.LogPath = "new.log" }, ""},
		{"source of a mount", func(c *cri.ContainerConfig) { c.Mounts[0].HostPath = "/new" }, ""},
		{"resources", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{CpuShares: 5}}
		}, ""},
		{"empty messages", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{}}
		}, ""},
		{"order of the environment", func(c *cri.ContainerConfig) { c.Envs[0], c.Envs[1] = c.Envs[1], c.Envs[0] }, ""},
		{"name", func(c *cri.ContainerConfig) { c.Metadata.Name = "db" }, `no container "db"`},
		{"command", func(c *cri.ContainerConfig) { c.Command = []string{"sh"} },
			`"web" differs from the checkpoint in command`},
		{"args", func(c *cri.ContainerConfig) { c.Args = []string{"-x"} }, "in args"},
		{"working directory", func(c *cri.ContainerConfig) { c.WorkingDir = "/" }, "in working_dir"},
		{"environment", func(c *cri.ContainerConfig) { c.Envs[0].Value = []byte("other") }, "in envs"},
		{"destination of a mount", func(c *cri.ContainerConfig) { c.Mounts[0].ContainerPath = "/x" }, "in mounts"},
		{"mount", func(c *cri.ContainerConfig) { c.Mounts = nil }, "in mounts"},
		{"read-only mount", func(c *cri.ContainerConfig) { c.Mounts[0].Readonly = true }, "in mounts"},
		{"image of a mount", func(c *cri.ContainerConfig) {
			c.Mounts[0] = &cri.Mount{
				ContainerPath: "/data", Image: &cri.ImageSpec{Image: "new"}, ImageSubPath: "x", SelinuxRelabel: true,
			}
		}, ""},
		{"propagation of a mount", func(c *cri.ContainerConfig) {
			c.Mounts[0].Propagation = cri.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}, "in mounts"},
		{"mounts below one", func(c *cri.ContainerConfig) { c.Mounts[0].RecursiveReadOnly = true }, "in mounts"},
		{"options of a mount", func(c *cri.ContainerConfig) { c.Mounts[0].MountOptions = []string{"noexec"} }, "in mounts"},
		{"owners in a mount", func(c *cri.ContainerConfig) {
			c.Mounts[0].UidMappings = []*cri.IDMapping{{HostId: 1, Length: 1}}
		}, "in mounts"},
		{"terminal", func(c *cri.ContainerConfig) { c.Tty = true }, "in tty"},
		{"privileged", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{Privileged: true}}
		}, "in linux.security_context.privileged"},
		{"user", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				RunAsUser: &cri.Int64Value{Value: 7}}}
		}, "in linux.security_context.run_as_user"},
		{"root instead of the image's user", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				RunAsUser: &cri.Int64Value{}}}
		}, "in linux.security_context.run_as_user"},
		{"runtime's seccomp profile instead of none", func(c *cri.ContainerConfig) {
			c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
				Seccomp: &cri.SecurityProfile{}}}
		}, "in linux.security_context.seccomp"},
	} {
		c := config("web")
		tt.change(c)
		err := m.CheckContainers([]*cri.ContainerConfig{c})
		if tt.want == "" && err != nil ||
			tt.want != "" && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: CheckContainers = %v, want %q", tt.name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has a value of the environment: %v", tt.name, err)
		}
	}
	m.Containers = append(m.Containers, Container{Name: "db"})
	if err := m.CheckContainers([]*cri.ContainerConfig{config("web")}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("CheckContainers with a container less = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
}

func TestCheckPod(t *testing.T) {
	m := manifest(t)
	same := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "new", Uid: "2"}, Hostname: "new", LogDirectory: "/var/log/new",
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: "/new"},
	}
	if err := m.CheckPod(same); err != nil {
		t.Errorf("CheckPod = %v, want nil for another name, hostname, log and cgroup", err)
	}
	same.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
	if err := m.CheckPod(same); err == nil || !strings.Contains(err.Error(), "linux.sysctls") {
		t.Errorf("CheckPod = %v, want an error about the sysctls", err)
	}
}
