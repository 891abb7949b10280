package shim

import (
	"fmt"
	"os"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/vm/jail"
)

// translated is a container's specification for the guest.
type translated struct {
	spec *specs.Spec
	// wanted are the sources of the host that the guest gets.
	wanted []wanted
}

// wanted is a source, and the mount of the guest's specification that is for it; nil for the root file system.
type wanted struct {
	source jail.Source
	mount  *specs.Mount
}

// translate turns the specification of a container for the host into one for the guest: the machine is the pod, so its
// namespaces but those of processes and mounts are the pod's. Those that a virtual machine cannot give are refused by
// name.
func translate(id string, host *specs.Spec, infra infraPids) (translated, error) {
	t := translated{spec: clone(host)}
	s := t.spec
	if err := refuse(s, infra); err != nil {
		return t, err
	}
	s.Version = "1.0.2" // every runtime takes it
	s.Hostname, s.Domainname, s.Hooks = "", "", nil
	s.Annotations = nil
	s.Process.ApparmorProfile, s.Process.SelinuxLabel = "", ""
	l := s.Linux
	l.MountLabel, l.Sysctl, l.IntelRdt = "", nil, nil
	l.CgroupsPath = "/pod/" + id
	l.Namespaces = guestNamespaces(l.Namespaces, infra)
	if isPrivileged(l.Resources) {
		l.Devices = guestDevices()
	}
	t.translateResources()
	t.wanted = append(t.wanted, wanted{source: jail.Source{Path: s.Root.Path}})
	for i := range s.Mounts {
		if err := t.translateMount(&s.Mounts[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// clone copies what translate changes.
func clone(s *specs.Spec) *specs.Spec {
	c := *s
	process, linux, root := *s.Process, *s.Linux, *s.Root
	c.Process, c.Linux, c.Root, c.Mounts = &process, &linux, &root, slices.Clone(s.Mounts)
	return &c
}

// infraPids are the numbers of the infra container's first process: in the guest, 0 for that container itself, and the
// one that stands for it on the host.
type infraPids struct{ guest, host uint32 }

// pidNamespace is the path by which a caller names the pod's PID namespace, from the pid that it was given.
func (i infraPids) pidNamespace() string { return fmt.Sprintf("/proc/%d/ns/pid", i.host) }

// refuse returns an error for what no virtual machine can give.
func refuse(s *specs.Spec, infra infraPids) error {
	l := s.Linux
	if len(l.Devices) > 0 {
		return invalid("device %s: a virtual machine does not have the devices of the host", l.Devices[0].Path)
	}
	if len(l.UIDMappings) > 0 || len(l.GIDMappings) > 0 {
		return invalid("a user namespace: not supported in a virtual machine")
	}
	for _, n := range l.Namespaces {
		switch {
		case n.Type == specs.UserNamespace:
			return invalid("a user namespace: not supported in a virtual machine")
		case n.Type == specs.PIDNamespace && n.Path != "" && n.Path != infra.pidNamespace():
			return invalid("PID namespace %s: a virtual machine does not share it with the host", n.Path)
		}
	}
	return nil
}

// guestNamespaces are those of the container in the guest. Without a PID namespace it is in that of the infra
// container. It has a cgroup namespace also if the host has cgroup v1: the guest has v2.
func guestNamespaces(host []specs.LinuxNamespace, infra infraPids) []specs.LinuxNamespace {
	pid := specs.LinuxNamespace{Type: specs.PIDNamespace}
	own := slices.ContainsFunc(host, func(n specs.LinuxNamespace) bool {
		return n.Type == specs.PIDNamespace && n.Path == ""
	})
	if !own && infra.guest != 0 {
		pid.Path = fmt.Sprintf("/proc/%d/ns/pid", infra.guest)
	}
	return []specs.LinuxNamespace{pid, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
}

// isPrivileged reports whether a container may use all devices.
func isPrivileged(r *specs.LinuxResources) bool {
	return r != nil && slices.ContainsFunc(r.Devices, func(d specs.LinuxDeviceCgroup) bool {
		return d.Allow && (d.Type == "" || d.Type == "a") && d.Major == nil && d.Minor == nil
	})
}

// guestDevices are the devices of the guest's kernel that privileged containers use: to mount filesystems, build images
// and make tunnels.
func guestDevices() []specs.LinuxDevice {
	return []specs.LinuxDevice{
		{Path: "/dev/fuse", Type: "c", Major: 10, Minor: 229, FileMode: new(os.FileMode(0o666))},
		{Path: "/dev/kmsg", Type: "c", Major: 1, Minor: 11, FileMode: new(os.FileMode(0o644))},
		{Path: "/dev/net/tun", Type: "c", Major: 10, Minor: 200, FileMode: new(os.FileMode(0o666))},
	}
}

// translateResources leaves out what belongs to the host: its processors, memory nodes and huge pages.
func (t *translated) translateResources() {
	if t.spec.Linux.Resources == nil {
		return
	}
	r := *t.spec.Linux.Resources
	t.spec.Linux.Resources = guestResources(&r)
}

// guestResources changes r.
func guestResources(r *specs.LinuxResources) *specs.LinuxResources {
	r.HugepageLimits, r.BlockIO = nil, nil // of the host's devices
	if r.CPU != nil {
		cpu := *r.CPU
		cpu.Cpus, cpu.Mems = "", ""
		r.CPU = &cpu
	}
	return r
}

// place has the specification name a source as the guest has it.
func (t *translated) place(w wanted, given jail.Given) {
	if w.mount == nil {
		t.spec.Root.Path = given.Path
		return
	}
	w.mount.Source = given.Path
	if given.AsAsked { // the guest sees no mounts below it, and could not leave them out
		w.mount.Options = slices.DeleteFunc(slices.Clone(w.mount.Options),
			func(o string) bool { return o == "ro" || o == "rro" })
	}
}

// translateMount gives the guest the source of a bind mount.
func (t *translated) translateMount(m *specs.Mount) error {
	if m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind") {
		return nil
	}
	if m.Destination == "/dev/shm" { // the guest has its own, for all containers of the pod
		m.Source = "/dev/shm"
		return nil
	}
	if slices.Contains(m.Options, "rshared") || slices.Contains(m.Options, "shared") {
		return invalid("mount %s: Bidirectional propagation: mounts in a virtual machine do not reach the host",
			m.Destination)
	}
	if len(m.UIDMappings) > 0 || len(m.GIDMappings) > 0 {
		return invalid("mount %s: id mappings: not supported in a virtual machine", m.Destination)
	}
	t.wanted = append(t.wanted, wanted{mount: m, source: jail.Source{
		Path: m.Source, ReadOnly: slices.Contains(m.Options, "ro"), RecursiveReadOnly: slices.Contains(m.Options, "rro"),
	}})
	return nil
}
