package preflight

import (
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/podd-project/podd/oci/spec"
)

// Kernel checks the features and the settings of the kernel. Facts are those of host.Probe, landlock is
// image.FilesRestricted.
func (r *Report) Kernel(facts spec.Facts, landlock bool) {
	if !slices.Contains(facts.Capabilities, "CAP_SYS_ADMIN") {
		r.Add(Problem, "capabilities", "CAP_SYS_ADMIN is missing: podd cannot make namespaces and mounts")
	}
	if facts.Seccomp {
		r.Add(OK, "seccomp", "filters of system calls can be installed")
	} else {
		r.Add(Problem, "seccomp", "the kernel has no seccomp filters: containers with a profile cannot be run")
	}
	if landlock {
		r.Add(OK, "Landlock", "processes of pulls can use only the image store's files")
	} else {
		r.Add(Problem, "Landlock", "the kernel does not have it: processes of pulls, which parse what registries send, can "+
			"read and change files of the node; Linux 5.13 and later have it unless lsm= leaves it out")
	}
	r.appArmor(facts.AppArmor)
	r.cgroups(facts.CgroupV2, "/sys/fs/cgroup/cgroup.controllers")
	r.overlay("/proc/filesystems")
	r.forwarding("/proc/sys/net/ipv4/ip_forward")
	r.propagation()
}

func (r *Report) appArmor(on bool) {
	if !on {
		r.Add(Note, "AppArmor", "is off: containers run without a profile")
		return
	}
	if _, err := exec.LookPath("apparmor_parser"); err != nil {
		r.Add(Problem, "AppArmor", "is on, but apparmor_parser is missing: containers run without podd's profile; "+
			"install the package apparmor")
		return
	}
	r.Add(OK, "AppArmor", "on")
}

// cgroups checks the controllers that limits of pods need. The file lists those of version 2; each of version 1 has a
// separate mount, which podd's start finds.
func (r *Report) cgroups(v2 bool, file string) {
	if !v2 {
		r.Add(Note, "cgroups", "version 1: deprecated by the kubelet and systemd")
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		r.Add(Problem, "cgroups", "%v", err)
		return
	}
	have := strings.Fields(string(data))
	for _, want := range []string{"cpu", "memory", "pids"} {
		if !slices.Contains(have, want) {
			r.Add(Problem, "cgroups", "the controller %s is not available, only %s", want, strings.Join(have, ", "))
			return
		}
	}
	r.Add(OK, "cgroups", "version 2")
}

func (r *Report) overlay(filesystems string) {
	data, err := os.ReadFile(filesystems)
	switch {
	case err != nil:
		r.Add(Problem, "overlayfs", "%v", err)
	case slices.Contains(strings.Fields(string(data)), "overlay"):
		r.Add(OK, "overlayfs", "available")
	default:
		r.Add(Note, "overlayfs", "its module is not loaded; the service loads it")
	}
}

func (r *Report) forwarding(file string) {
	data, err := os.ReadFile(file)
	switch {
	case err != nil:
		r.Add(Problem, "forwarding", "%v", err)
	case strings.TrimSpace(string(data)) == "1":
		r.Add(OK, "forwarding", "of IPv4 is on")
	default:
		r.Add(Note, "forwarding", "of IPv4 is off, kubeadm and most networks need it: set net.ipv4.ip_forward=1 in sysctl.d")
	}
}

// propagation checks that mounts of the node reach containers, as volumes with mount propagation need it.
func (r *Report) propagation() {
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter("/"))
	if err != nil || len(mounts) == 0 {
		r.Add(Note, "propagation", "the mount of / was not found: %v", err)
		return
	}
	if !strings.Contains(mounts[0].Optional, "shared:") {
		r.Add(Note, "propagation", "/ is not a shared mount: volumes with mount propagation cannot be used; "+
			"run mount --make-rshared /")
		return
	}
	r.Add(OK, "propagation", "/ is a shared mount")
}
