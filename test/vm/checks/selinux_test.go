package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestSELinux needs the machine of `run.sh selinux`, whose kernel enforces the policy of test/vm/selinux.
func TestSELinux(t *testing.T) {
	if read(t, "/sys/module/apparmor/parameters/enabled") == "Y" {
		t.Skip("this machine has AppArmor: see test/vm/run.sh selinux")
	}
	if got := read(t, "/sys/fs/selinux/enforce"); got != "1" {
		t.Fatalf("the kernel's enforce = %s, want 1", got)
	}
	for _, c := range []struct {
		name  string
		check func(*testing.T)
	}{
		{"labels", labelsOfPod},
		{"shared PID namespace", labelOfInfra},
		{"labels of the request", labelsOfRequest},
		{"volumes", labelsOfVolumes},
		{"privileged", labelOfPrivileged},
		{"bad options", badLabels},
	} {
		t.Run(c.name, c.check)
	}
}

// labelOf returns what is in a file of /proc/PID/attr.
func labelOf(k *kubelet, id, pid string) string {
	k.Helper()
	return strings.TrimRight(k.exec(id, "cat /proc/"+pid+"/attr/current"), "\x00\n")
}

// fileLabel returns the label of a file in the container.
func fileLabel(k *kubelet, id, path string) string {
	k.Helper()
	return labelAt(k, filepath.Join("/proc", k.pid(id), "root", path))
}

func labelAt(k *kubelet, path string) string {
	k.Helper()
	value := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", value)
	k.ok("label of "+path, err)
	return strings.TrimRight(string(value[:n]), "\x00")
}

// level returns the last part of a label.
func level(label string) string { return strings.SplitN(label, ":", 4)[3] }

const containerFile = "system_u:object_r:container_file_t:"

// ownLevel is the label of a process whose pod got its level from podd.
var ownLevel = regexp.MustCompile(`^system_u:system_r:container_t:s0:c\d+,c\d+$`)

// labelsOfPod: processes, also of an exec, and every file that podd makes have the pod's labels, and the pod can use
// them.
func labelsOfPod(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("sleep 10000", func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{ContainerPath: "/image", Image: &cri.ImageSpec{Image: busybox}, Readonly: true}}
		c.Linux.SecurityContext.NoNewPrivs = true
	})
	process := labelOf(k, id, "1")
	if !ownLevel.MatchString(process) {
		t.Fatalf("label of the process = %q, want %s", process, ownLevel)
	}
	if got := labelOf(k, id, "self"); got != process {
		t.Errorf("label of an exec = %q, want %q", got, process)
	}
	for _, path := range []string{"/bin/sh", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/dev/shm", "/image/bin"} {
		if got, want := fileLabel(k, id, path), containerFile+level(process); got != want {
			t.Errorf("label of %s = %q, want %q", path, got, want)
		}
	}
	k.exec(id, "touch /file /dev/shm/file && cat /file /etc/hosts /image/etc/passwd")
}

// labelOfInfra: process 1 of a shared PID namespace is podd's own program.
func labelOfInfra(t *testing.T) {
	k := newKubelet(t)
	k.runPod(func(p *cri.PodSandboxConfig) {
		p.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
	})
	id := k.start("sleep 10000")
	if got, want := labelOf(k, id, "1"), labelOf(k, id, "self"); got != want || !ownLevel.MatchString(got) {
		t.Errorf("label of the infra container = %q, want that of the other, %q", got, want)
	}
}

func labelsOfRequest(t *testing.T) {
	k := newKubelet(t)
	k.runPod(func(p *cri.PodSandboxConfig) {
		p.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{
			User: "system_u", Role: "system_r", Type: "container_t", Level: "s0:c5,c6"}
	})
	for name, want := range map[string]string{"as-the-pod": "s0:c5,c6", "its-own": "s0:c7,c8"} {
		id := k.start("sleep 10000", named(name), func(c *cri.ContainerConfig) {
			if name == "its-own" {
				c.Linux.SecurityContext.SelinuxOptions = &cri.SELinuxOption{Level: want}
			}
		})
		if got := labelOf(k, id, "1"); got != "system_u:system_r:container_t:"+want {
			t.Errorf("label of %s = %q, want %s", name, got, want)
		}
		if got := fileLabel(k, id, "/bin/sh"); got != containerFile+want {
			t.Errorf("label of a file of %s = %q, want %s", name, got, want)
		}
	}
}

// labelsOfVolumes: a container can use a directory of the host after podd has relabelled it, and no other; then only
// pods of that level can.
func labelsOfVolumes(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	k.ok("write the file", os.WriteFile(file, []byte("data\n"), 0o666))
	volume := func(relabel bool) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/volume", SelinuxRelabel: relabel}}
		}
	}
	try := func(what, want string, mods ...func(*cri.ContainerConfig)) (id string) {
		t.Helper()
		id = k.start("sleep 10000", append(mods, named(what))...)
		if got := k.exec(id, "cat /volume/file 2>&1 || true"); !strings.HasSuffix(got, want) {
			t.Errorf("%s: cat of the file = %q, want %q", what, got, want)
		}
		return id
	}
	const refused = "Permission denied"
	try("not relabelled", refused, volume(false))
	id := try("relabelled", "data", volume(true))
	own := level(labelOf(k, id, "1"))
	k.exec(id, "echo more >>/volume/file; touch /volume/new")
	for _, path := range []string{dir, file, filepath.Join(dir, "new")} {
		if got := labelAt(k, path); got != containerFile+own {
			t.Errorf("label of %s = %q, want the pod's, %q", path, got, containerFile+own)
		}
	}
	other := &cri.SELinuxOption{Level: "s0:c1022,c1023"}
	try("another level", refused, volume(false), func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.SelinuxOptions = other
	})
}

// labelOfPrivileged: SELinux restricts no privileged container.
func labelOfPrivileged(t *testing.T) {
	k := newKubelet(t)
	k.runPod(func(p *cri.PodSandboxConfig) { p.Linux.SecurityContext.Privileged = true })
	file := filepath.Join(t.TempDir(), "file")
	k.ok("write the file", os.WriteFile(file, []byte("data\n"), 0o666))
	id := k.start("sleep 10000", func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.Privileged = true
		c.Mounts = []*cri.Mount{{HostPath: filepath.Dir(file), ContainerPath: "/volume"}}
	})
	if got, want := labelOf(k, id, "1"), strings.TrimRight(read(t, "/proc/self/attr/current"), "\x00"); got != want {
		t.Errorf("label of the process = %q, want the host's, %q", got, want)
	}
	k.exec(id, "cat /volume/file")
}

// badLabels: options that the policy does not have are refused by name, and the pod is not made.
func badLabels(t *testing.T) {
	k := newKubelet(t)
	for bad, o := range map[string]*cri.SELinuxOption{
		"none_t": {Type: "none_t"}, "s0:c9999": {Level: "s0:c9999"}, "nobody_u": {User: "nobody_u"},
	} {
		_, err := k.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "bad", Namespace: "checks", Uid: "bad"},
			Linux: &cri.LinuxPodSandboxConfig{
				SecurityContext: &cri.LinuxSandboxSecurityContext{SelinuxOptions: o}},
		}})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), bad) {
			t.Errorf("RunPodSandbox with %s = %v, want InvalidArgument that names it", bad, err)
		}
	}
}
