package spec

import specs "github.com/opencontainers/runtime-spec/specs-go"

// ttyGroup owns terminals in every Linux distribution: group "tty", gid 5.
const ttyGroup = 5

// defaultMounts are the ones that every container has.
func (b *builder) defaultMounts() []specs.Mount {
	list := []specs.Mount{
		b.proc(),
		{
			Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"},
		},
		b.sys(),
		b.pts(),
		b.shm(),
		b.mqueue(),
		{
			Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: append(quiet(), "relatime", b.kernelAccess()),
		},
	}
	return append(list, b.podFiles()...)
}

// quiet are the options of a mount that holds no programs and no devices.
func quiet() []string { return []string{"nosuid", "noexec", "nodev"} }

// kernelAccess: "Any sysfs and procfs mounts are mounted RW" for privileged containers.
func (b *builder) kernelAccess() string {
	if b.privileged {
		return "rw"
	}
	return "ro"
}

// proc binds the node's /proc where the kernel would refuse a new one: it may only be mounted by the user namespace
// that owns the PID namespace.
func (b *builder) proc() specs.Mount {
	if b.userns() && b.in.Namespaces.PID == Host {
		return bind("/proc", "/proc", quiet()...)
	}
	return specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: quiet()}
}

// sys binds the node's /sys where the kernel would refuse a new one: sysfs belongs to the network namespace's owner.
func (b *builder) sys() specs.Mount {
	access := b.kernelAccess()
	if b.userns() && b.in.Namespaces.Net == Host {
		if access == "ro" && b.in.Handler.RecursiveReadOnly {
			access = "rro" // or the mounts below /sys would stay writable
		}
		return bind("/sys", "/sys", append(quiet(), access)...)
	}
	return specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append(quiet(), access)}
}

func (b *builder) pts() specs.Mount {
	options := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}
	if !b.userns() || mapped(ttyGroup, b.in.Namespaces.GIDs) {
		options = append(options, "gid=5")
	}
	return specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: options}
}

// shm is the pod's, which its containers share as they share the IPC namespace; the node's with the node's IPC.
func (b *builder) shm() specs.Mount {
	switch {
	case b.in.Files.Shm != "":
		return bind("/dev/shm", b.in.Files.Shm)
	case b.in.Namespaces.IPC == Host:
		return bind("/dev/shm", "/dev/shm")
	}
	return specs.Mount{
		Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append(quiet(), "mode=1777", "size=65536k"),
	}
}

func (b *builder) mqueue() specs.Mount {
	if b.userns() && b.in.Namespaces.IPC == Host {
		return bind("/dev/mqueue", "/dev/mqueue") // as for /proc: it belongs to the IPC namespace's owner
	}
	return specs.Mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: quiet()}
}

// podFiles are writable like the rest of /etc, so read-only when the root filesystem is.
func (b *builder) podFiles() []specs.Mount {
	var options, list = []string(nil), []specs.Mount(nil)
	if b.sc.GetReadonlyRootfs() {
		options = []string{"ro"}
	}
	for _, f := range []struct{ to, from string }{
		{"/etc/hostname", b.in.Files.Hostname},
		{"/etc/hosts", b.in.Files.Hosts},
		{"/etc/resolv.conf", b.in.Files.ResolvConf},
	} {
		if f.from != "" {
			list = append(list, bind(f.to, f.from, options...))
		}
	}
	return list
}

func bind(to, from string, options ...string) specs.Mount {
	return specs.Mount{
		Destination: to, Type: "bind", Source: from, Options: append([]string{"rbind", "rprivate"}, options...),
	}
}
