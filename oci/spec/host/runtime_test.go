package host_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
)

// machine runs what oci/spec writes and oci/spec/host found out with a real runtime, once, in the foreground.
type machine struct {
	*ocitest.Machine
	t       *testing.T
	handler spec.Handler
}

func each(t *testing.T, f func(*testing.T, *machine)) {
	for name, handler := range map[string]spec.Handler{
		"runc": {OCIVersion: "1.2.1", RecursiveReadOnly: true, UserNamespaces: true},
		"crun": {OCIVersion: "1.0.2", UserNamespaces: true}, // Debian 12's: nothing above 1.0
	} {
		t.Run(name, func(t *testing.T) { f(t, &machine{ocitest.Real(t, name), t, handler}) })
	}
}

// input is a container of a privileged pod that runs a shell script as root.
func (m *machine) input(
	script string, sc *cri.LinuxContainerSecurityContext, change func(*cri.ContainerConfig),
) spec.Input {
	m.t.Helper()
	facts, err := host.Probe()
	if err != nil {
		m.t.Fatal(err)
	}
	id := filepath.Base(m.t.TempDir()) + strings.NewReplacer("/", "-", "_", "-").Replace(m.t.Name())
	cgroup, err := spec.CgroupsPath(false, m.Cgroup, "podd", id)
	if err != nil {
		m.t.Fatal(err)
	}
	config := &cri.ContainerConfig{
		Command: []string{"/bin/sh", "-c", script}, Linux: &cri.LinuxContainerConfig{SecurityContext: sc},
	}
	if change != nil {
		change(config)
	}
	in := spec.Input{
		ID: id, Config: config, Image: v1.ImageConfig{Env: []string{"PATH=/bin"}}, Rootfs: m.Rootfs, CgroupsPath: cgroup,
		Pod: &cri.PodSandboxConfig{
			Hostname: "web-0",
			Linux:    &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{Privileged: true}},
		},
		Handler: m.handler, Host: facts,
	}
	if in.User, err = host.LookupUser(m.Rootfs, "", sc); err != nil {
		m.t.Fatal(err)
	}
	if in.Mounts, err = host.NewResolver(1, false).Mounts(m.t.Context(), config.GetMounts(), nil); err != nil {
		m.t.Fatal(err)
	}
	if in.Devices, err = host.Devices(config.GetDevices()); err != nil {
		m.t.Fatal(err)
	}
	if in.Seccomp, err = host.SeccompProfile(sc.GetSeccomp(), "/"); err != nil {
		m.t.Fatal(err)
	}
	return in
}

func (m *machine) container(in spec.Input) string {
	m.t.Helper()
	s, warnings, err := spec.Container(in)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, w := range warnings {
		m.t.Log(w)
	}
	return m.run(in.ID, s)
}

// run returns what the container printed.
func (m *machine) run(id string, s *specs.Spec) string {
	m.t.Helper()
	bundle := m.t.TempDir()
	config, err := json.Marshal(s)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		m.t.Fatal(err)
	}
	var out, complaint bytes.Buffer
	c := exec.Command(m.Config.Path, "--root", m.Config.Root, "run", "--bundle", bundle, id)
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		m.t.Fatalf("%v\nout: %s\nerr: %s\nconfig: %s", err, out.String(), complaint.String(), config)
	}
	return out.String()
}

// has fails unless every line is in the output.
func (m *machine) has(out string, lines ...string) {
	m.t.Helper()
	for _, want := range lines {
		if !strings.Contains("\n"+out, "\n"+want+"\n") {
			m.t.Errorf("no line %q in:\n%s", want, out)
		}
	}
}

const facts = `id -u; id -G; pwd; env; cat /etc/hostname
cat /proc/sys/kernel/hostname /proc/self/oom_score_adj
grep() { while read -r k v; do case "$k" in $1:) echo "$k" "$v";; esac; done < /proc/self/status; }
grep CapBnd; grep CapAmb; grep NoNewPrivs; grep Seccomp
echo x 2>/dev/null > /ro/x && echo written; echo x 2>/dev/null > /rw/x && echo wrote
echo x 2>/dev/null > /proc/sys/kernel/domainname && echo sysctl
cat /proc/kcore 2>/dev/null | head -c 1 | wc -c
ls /sys/fs/cgroup > /dev/null && echo cgroups; ls -d /dev/mqueue /dev/shm /dev/pts/ptmx`

// TestRunUnprivileged: a container as a careful user would write it, seen from inside.
func TestRunUnprivileged(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		ro, rw := t.TempDir(), t.TempDir()
		if err := os.Chmod(rw, 0o777); err != nil {
			t.Fatal(err)
		}
		sc := &cri.LinuxContainerSecurityContext{
			RunAsUser: &cri.Int64Value{Value: 1234}, RunAsGroup: &cri.Int64Value{Value: 5678}, SupplementalGroups: []int64{42},
			Capabilities: &cri.Capability{
				DropCapabilities: []string{"ALL"}, AddAmbientCapabilities: []string{"NET_BIND_SERVICE"},
			},
			NoNewPrivs: true, ReadonlyRootfs: true, Seccomp: &cri.SecurityProfile{},
			MaskedPaths: []string{"/proc/kcore", "/nonexistent"}, ReadonlyPaths: []string{"/proc/sys"},
		}
		in := m.input(facts, sc, func(c *cri.ContainerConfig) {
			c.WorkingDir = "/tmp"
			c.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("hello\nworld")}}
			c.Linux.Resources = &cri.LinuxContainerResources{
				MemoryLimitInBytes: 64 << 20, CpuShares: 100, CpuQuota: 50_000, CpuPeriod: 100_000, OomScoreAdj: 700,
				HugepageLimits: []*cri.HugepageLimit{{PageSize: "2MB"}},
			}
			c.Mounts = []*cri.Mount{
				{ContainerPath: "/ro", HostPath: ro, Readonly: true, MountOptions: []string{"noexec", "nosuid", "nodev"}},
				{ContainerPath: "/rw", HostPath: rw},
			}
		})
		hostname := filepath.Join(t.TempDir(), "hostname")
		if err := os.WriteFile(hostname, []byte("web-0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		in.Files.Hostname = hostname
		out := m.container(in)
		m.has(out, "1234", "5678 42", "/tmp", "GREETING=hello", "world", "HOSTNAME=web-0", "web-0", "700",
			"CapBnd: 0000000000000400", "CapAmb: 0000000000000400", "NoNewPrivs: 1", "Seccomp: 2", "wrote", "0", "cgroups",
			"/dev/pts/ptmx")
		for _, not := range []string{"written", "sysctl"} {
			if strings.Contains(out, "\n"+not+"\n") {
				t.Errorf("%s: something read-only could be written", not)
			}
		}
	})
}

// TestRunPrivileged: with all that podd itself may have.
func TestRunPrivileged(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		in := m.input(`cat /proc/self/status; ls /dev; echo x > /proc/sys/kernel/domainname && echo sysctl
			mkdir /tmp/m; cat /proc/mounts; cat /proc/1/oom_score_adj`,
			&cri.LinuxContainerSecurityContext{Privileged: true}, func(c *cri.ContainerConfig) {
				c.Linux.Resources = &cri.LinuxContainerResources{OomScoreAdj: -500}
			})
		out := m.container(in)
		own, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, bounding, _ := strings.Cut(string(own), "CapBnd:\t")
		bounding, _, _ = strings.Cut(bounding, "\n")
		m.has(out, "CapBnd:\t"+bounding, "CapEff:\t"+bounding, "Seccomp:\t0", "sysctl", "kmsg", "null")
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 3 && f[1] == "/sys" && !strings.HasPrefix(f[3], "rw,") {
				t.Errorf("/sys is not writable: %s", line)
			}
		}
	})
}

// TestRunSeccompLocalhost: critest's profile, which forbids chmod.
func TestRunSeccompLocalhost(t *testing.T) {
	profile := filepath.Join(t.TempDir(), "p.json")
	content := `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(profile, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, m *machine) {
		out := m.container(m.input(`mkdir /tmp/x 2>&1 || echo refused; ls /tmp`, &cri.LinuxContainerSecurityContext{
			Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: profile},
		}, nil))
		m.has(out, "refused")
	})
}

// TestRunRecursiveReadOnly: a mount below the volume is read-only, too.
func TestRunRecursiveReadOnly(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		if !m.handler.RecursiveReadOnly {
			t.Log("this runtime has none; that podd refuses such a request is tested in oci/spec")
			return
		}
		dir := t.TempDir()
		below := filepath.Join(dir, "below")
		if err := os.Mkdir(below, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("podd-test", below, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(below, unix.MNT_DETACH) })
		const script = `echo x 2>/dev/null > /data/below/x && echo written || echo refused
			echo x 2>/dev/null > /data/x || echo top`
		for rro, want := range map[bool]string{true: "refused", false: "written"} {
			in := m.input(script, nil, func(c *cri.ContainerConfig) {
				c.Mounts = []*cri.Mount{{ContainerPath: "/data", HostPath: dir, Readonly: true, RecursiveReadOnly: rro}}
			})
			m.has(m.container(in), want, "top")
		}
	})
}

// TestRunDevices: a device asked for can be used, under the name asked for.
func TestRunDevices(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		in := m.input(`echo x > /dev/other-null && echo usable`, nil, func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/other-null", Permissions: "rw"}}
		})
		m.has(m.container(in), "usable")
	})
}

// pod makes user, network, IPC and UTS namespaces with a process that sleeps in them until the test ends.
func pod(t *testing.T) spec.Namespaces {
	t.Helper()
	ids := []syscall.SysProcIDMap{{HostID: 100_000, Size: 65_536}}
	p := exec.Command("sleep", "60")
	p.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: ids, GidMappings: ids, Pdeathsig: syscall.SIGKILL,
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	dir := fmt.Sprintf("/proc/%d/ns", p.Process.Pid)
	mapping := []specs.LinuxIDMapping{{HostID: 100_000, Size: 65_536}}
	return spec.Namespaces{
		Net: dir + "/net", IPC: dir + "/ipc", UTS: dir + "/uts", User: dir + "/user", UIDs: mapping, GIDs: mapping,
	}
}

// giveTo makes a tree belong to the user namespace's root, as the image store does.
func giveTo(t *testing.T, root string, id int) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, id, id))
	})
	// The namespace's root must be able to get there.
	if err := errors.Join(err, os.Chmod(filepath.Dir(root), 0o711)); err != nil {
		t.Fatal(err)
	}
}

// TestRunUserNamespace: root in the namespace is an unprivileged user outside, and can mount /sys, /proc and the rest.
func TestRunUserNamespace(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		giveTo(t, m.Rootfs, 100_000)
		in := m.input(
			`id -u; cat /proc/self/uid_map | tr -s ' '; ls /sys/class/net; ls -d /dev/mqueue; echo x > /tmp/x && echo wrote`,
			nil, nil,
		)
		in.Namespaces = pod(t)
		out := m.container(in)
		m.has(out, "0", " 0 100000 65536", "lo", "/dev/mqueue", "wrote")
	})
}

// TestRunUserNamespaceOnNode: what the kernel does not let such a container mount is bound from the node.
func TestRunUserNamespaceOnNode(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		giveTo(t, m.Rootfs, 100_000)
		in := m.input(
			`cat /proc/self/uid_map | tr -s ' '; ls -d /sys/class/net/lo; echo x 2>/dev/null > /sys/x || echo readonly`, nil,
			nil,
		)
		in.Namespaces = pod(t)
		in.Namespaces.Net, in.Namespaces.UTS = spec.Host, spec.Host
		m.has(m.container(in), " 0 100000 65536", "/sys/class/net/lo", "readonly")
	})
}

// TestRunPause: the infra container's configuration, with a script for the program that podd embeds.
func TestRunPause(t *testing.T) {
	each(t, func(t *testing.T, m *machine) {
		script := "#!/bin/sh\nid -u; cat /proc/self/status /proc/self/oom_score_adj\n" +
			"echo x 2>/dev/null > /tmp/x || echo readonly\n"
		if err := os.WriteFile(filepath.Join(m.Rootfs, "pause"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		in := m.input("", nil, nil)
		s, _, err := spec.Pause(spec.PauseInput{
			ID: in.ID, Pod: &cri.PodSandboxConfig{}, Rootfs: m.Rootfs, CgroupsPath: in.CgroupsPath, Handler: in.Handler,
			Host: in.Host,
		})
		if err != nil {
			t.Fatal(err)
		}
		m.has(m.run(in.ID, s), "65535", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "readonly")
	})
}
