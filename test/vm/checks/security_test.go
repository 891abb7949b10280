package checks

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func appArmor(kind cri.SecurityProfile_ProfileType) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.Apparmor = &cri.SecurityProfile{ProfileType: kind}
	}
}

func TestAppArmorProfile(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	for _, c := range []struct {
		name, want string
		mods       []func(*cri.ContainerConfig)
	}{
		{"runtime default", "podd-default (enforce)",
			[]func(*cri.ContainerConfig){appArmor(cri.SecurityProfile_RuntimeDefault)}},
		{"unconfined", "unconfined", []func(*cri.ContainerConfig){appArmor(cri.SecurityProfile_Unconfined)}},
		{"unset", "podd-default (enforce)", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := k.start("sleep 10000", append(c.mods, named(c.name))...)
			if got := k.exec(id, "cat /proc/1/attr/current"); got != c.want {
				t.Errorf("the container's profile = %q, want %q", got, c.want)
			}
			if got := k.exec(id, "cat /proc/self/attr/current"); got != c.want {
				t.Errorf("an exec's profile = %q, want %q", got, c.want)
			}
		})
	}
}

// TestAppArmorDenies: what the default profile denies where no path is masked or read-only.
func TestAppArmorDenies(t *testing.T) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("sleep 10000", func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.MaskedPaths = []string{"/proc/kcore"} // otherwise podd makes /proc/sys read-only
	})
	for file, want := range map[string]string{
		"kernel/core_pattern": "denied", "kernel/sysrq": "denied", "kernel/threads-max": "denied", "kernel/sem": "denied",
		"kernel/modprobe": "denied", "fs/suid_dumpable": "denied", "vm/swappiness": "denied",
		"kernel/shmmni": "allowed", "net/ipv4/ip_default_ttl": "allowed",
	} {
		file = "/proc/sys/" + file
		write := "v=$(cat " + file + "); (echo \"$v\" >" + file + ") 2>/dev/null && echo allowed || echo denied"
		if got := k.exec(id, write); got != want {
			t.Errorf("a write to %s is %s, want it %s", file, got, want)
		}
	}
}

func named(name string) func(*cri.ContainerConfig) {
	return func(c *cri.ContainerConfig) { c.Metadata.Name = strings.ReplaceAll(name, " ", "-") }
}

func TestUserNamespace(t *testing.T) {
	const first, length = 1_000_000, 65_536
	userns := &cri.UserNamespace{Mode: cri.NamespaceMode_POD,
		Uids: []*cri.IDMapping{{HostId: first, ContainerId: 0, Length: length}},
		Gids: []*cri.IDMapping{{HostId: first, ContainerId: 0, Length: length}}}
	k := newKubelet(t)
	k.runPod(func(p *cri.PodSandboxConfig) {
		p.Linux.SecurityContext.NamespaceOptions.UsernsOptions = userns
	})
	id := k.start("exec sleep 10000", func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{HostPath: t.TempDir(), ContainerPath: "/data",
			UidMappings: userns.Uids, GidMappings: userns.Gids}}
	})
	if got := strings.Join(strings.Fields(k.exec(id, "cat /proc/self/uid_map")), " "); got != "0 1000000 65536" {
		t.Errorf("uid_map = %q, want %q", got, "0 1000000 65536")
	}
	if got := k.exec(id, "id -u; stat -c %u /bin/sh /etc/hosts /data"); got != "0\n0\n0\n0" {
		t.Errorf("in the container, uids of the process and of files = %q, want 0", got)
	}
	if got := read(t, "/proc/"+k.pid(id)+"/status"); !strings.Contains(got, "\nUid:\t1000000\t1000000") {
		t.Errorf("uid of the process on the host: want 1000000, got\n%s", got)
	}
	k.exec(id, "touch /data/file /etc/file && rm /etc/file")
}
