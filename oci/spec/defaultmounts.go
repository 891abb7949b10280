package spec

import specs "github.com/opencontainers/runtime-spec/specs-go"

// ttyGroup is the group "tty", which owns terminals: gid 5 in every Linux distribution.
const ttyGroup = 5

// defaultMounts returns the mounts that every container has.
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
		b.cgroupMount(),
	}
	return append(list, b.podFiles()...)
}

// quiet returns the options of a mount that holds no programs and no devices.
func quiet() []string { return []string{"nosuid", "noexec", "nodev"} }

// kernelAccess is "rw" for privileged containers. CRI: "Any sysfs and procfs mounts are mounted RW".
func (b *builder) kernelAccess() string {
	if b.privileged {
		return "rw"
	}
	return "ro"
}

// proc binds the node's /proc where the kernel refuses a new procfs: only the user namespace that owns the PID
// namespace may mount one.
func (b *builder) proc() specs.Mount {
	if b.userns() && b.in.Namespaces.PID == Host {
		return bind("/proc", "/proc", quiet()...)
	}
	return specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: quiet()}
}

// sys binds the node's /sys where the kernel refuses a new sysfs: only the user namespace that owns the network
// namespace may mount one.
func (b *builder) sys() specs.Mount {
	access := b.kernelAccess()
	if b.userns() && b.in.Namespaces.Net == Host {
		if access == "ro" && b.in.Handler.RecursiveReadOnly {
			access = "rro" // with "ro" the mounts below /sys remain writable
		}
		return bind("/sys", "/sys", append(quiet(), access)...)
	}
	return specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append(quiet(), access)}
}

// cgroupMount binds the node's cgroups into a privileged container on cgroup v2, which has no cgroup namespace: a new
// mount there would change the options of the node's, such as nsdelegate (runc issue 5258).
func (b *builder) cgroupMount() specs.Mount {
	const path = "/sys/fs/cgroup"
	if b.in.Host.CgroupV2 && !b.cgroupNamespace() && !b.in.Handler.OwnKernel {
		return bind(path, path, append(quiet(), "relatime", b.kernelAccess())...)
	}
	access := b.kernelAccess()
	if b.writableCgroups() {
		access = "rw"
	}
	return specs.Mount{Destination: path, Type: "cgroup", Source: "cgroup", Options: append(quiet(), "relatime", access)}
}

func (b *builder) pts() specs.Mount {
	options := []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}
	if !b.userns() || mapped(ttyGroup, b.in.Namespaces.GIDs) {
		options = append(options, "gid=5")
	}
	return specs.Mount{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: options}
}

// shm binds the pod's shared memory, which its containers share like the IPC namespace; the node's with the node's
// IPC namespace.
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
		return bind("/dev/mqueue", "/dev/mqueue") // as with /proc: only the owner of the IPC namespace may mount one
	}
	return specs.Mount{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: quiet()}
}

// podFiles are writable like the rest of /etc: read-only if the root filesystem is.
func (b *builder) podFiles() []specs.Mount {
	var options, list = quiet(), []specs.Mount(nil)
	if b.readOnlyRoot() {
		options = append(options, "ro")
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
