package spec

import (
	"path"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// devices sets the device nodes; their cgroup rules are part of the resources. Runtimes add /dev/null and the other
// default devices to both.
func (b *builder) devices() error {
	for _, d := range b.in.Devices {
		if err := absolute("container path", d.Node.Path); err != nil {
			return err
		}
	}
	if b.userns() && b.in.Defaults.DeviceOwnership && len(b.in.Devices) > 0 {
		b.warn("devices are the node's in a user namespace and keep their owner")
	}
	for _, d := range b.allDevices() {
		if b.userns() && d.Source != "" && d.Source != d.Node.Path {
			b.bindDevice(d) // a runtime would look for the node at the container's path
			continue
		}
		b.spec.Linux.Devices = append(b.spec.Linux.Devices, d.Node)
	}
	return nil
}

// bindDevice mounts the host's node, which keeps its owner and mode.
func (b *builder) bindDevice(d Device) {
	b.spec.Mounts = append(b.spec.Mounts, specs.Mount{
		Destination: d.Node.Path, Type: "bind", Source: d.Source, Options: []string{"bind", "rprivate", "nosuid", "noexec"},
	})
}

// allDevices returns the requested devices and, for a privileged container, those of the node at other paths.
func (b *builder) allDevices() []Device {
	var list []Device
	if b.privileged && !b.in.NoHostDevices {
		list = slices.Clone(b.in.Host.Devices)
	}
	for _, d := range b.owned(b.in.Devices) {
		d.Node.Path = path.Clean(d.Node.Path)
		list = slices.DeleteFunc(list, func(other Device) bool { return other.Node.Path == d.Node.Path })
		list = append(list, d)
	}
	return list
}

// deviceRules returns the rules of the device cgroup: only the listed devices, or all for a privileged container. If
// the runtime has its own kernel, these are that kernel's devices.
func (b *builder) deviceRules() []specs.LinuxDeviceCgroup {
	if b.privileged && (!b.in.NoHostDevices || b.in.Handler.OwnKernel) {
		return []specs.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}
	}
	rules := []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}
	for _, d := range b.allDevices() {
		rules = append(rules, specs.LinuxDeviceCgroup{
			Allow: true, Type: d.Node.Type, Major: new(d.Node.Major), Minor: new(d.Node.Minor), Access: d.Access,
		})
	}
	return rules
}
