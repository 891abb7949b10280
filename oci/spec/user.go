package spec

import (
	"math"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func (b *builder) user() error {
	u := b.in.User
	if err := b.checkID("user", u.UID, b.in.Namespaces.UIDs); err != nil {
		return err
	}
	for _, gid := range append([]uint32{u.GID}, u.Groups...) {
		if err := b.checkID("group", gid, b.in.Namespaces.GIDs); err != nil {
			return err
		}
	}
	groups := clone(u.Groups)
	if b.in.Handler.OwnKernel {
		slices.Sort(groups) // the order of Linux; gVisor keeps that of config.json
	}
	b.spec.Process.User = specs.User{UID: u.UID, GID: u.GID, AdditionalGids: groups}
	return nil
}

// checkID refuses ids for which the runtime would fail later, with an EINVAL from the kernel.
func (b *builder) checkID(kind string, id uint32, mappings []specs.LinuxIDMapping) error {
	if id == math.MaxUint32 {
		return invalid("%s id %d means \"no change\" to the kernel", kind, id)
	}
	if b.userns() && !mapped(id, mappings) {
		return invalid("%s id %d is not mapped in the pod's user namespace", kind, id)
	}
	return nil
}

func mapped(id uint32, mappings []specs.LinuxIDMapping) bool {
	for _, m := range mappings {
		if id >= m.ContainerID && uint64(id) < uint64(m.ContainerID)+uint64(m.Size) {
			return true
		}
	}
	return false
}
