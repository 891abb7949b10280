package spec

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// ErrRRO means that the handler cannot make the requested recursive read-only mount. It is the CRI's error reason,
// which the kubelet looks for.
var ErrRRO = crierrors.ErrRROUnsupported

// mounts sets podd's own mounts, except those that the container replaces, and the container's. A mount comes after
// those above it in the tree, which would hide it otherwise.
func (b *builder) mounts() error {
	if len(b.in.Mounts) != len(b.in.Config.GetMounts()) {
		return fmt.Errorf("%d mounts are requested, %d were resolved", len(b.in.Config.GetMounts()), len(b.in.Mounts))
	}
	taken := map[string]bool{}
	var asked []specs.Mount
	for _, m := range b.in.Mounts {
		mount, err := b.mount(m)
		if err != nil {
			return err
		}
		taken[mount.Destination] = true
		asked = append(asked, mount)
	}
	list := slices.DeleteFunc(b.defaultMounts(), func(m specs.Mount) bool { return replaced(m.Destination, taken) })
	list = append(list, asked...)
	list = append(list, b.nodeMounts(list)...)
	slices.SortStableFunc(
		list, func(x, y specs.Mount) int { return cmp.Compare(depth(x.Destination), depth(y.Destination)) },
	)
	b.spec.Mounts = list
	return nil
}

func depth(p string) int { return strings.Count(p, "/") }

// replaced reports whether the container has its own mount at the destination, or one at /dev or /sys above it: podd's
// mounts below those would appear in the volume.
func replaced(destination string, taken map[string]bool) bool {
	return taken[destination] ||
		taken["/dev"] && strings.HasPrefix(destination, "/dev/") ||
		taken["/sys"] && strings.HasPrefix(destination, "/sys/")
}

// mount returns one bind mount. Its options never include "rw": a bind mount is as writable as its source. Those of the
// source's mount are added later, see host.Resolver.Restrict.
func (b *builder) mount(m Mount) (specs.Mount, error) {
	if err := checkMount(m); err != nil {
		return specs.Mount{}, err
	}
	c := m.Config
	options, err := b.propagation(c)
	if err != nil {
		return specs.Mount{}, err
	}
	options = append([]string{"rbind"}, options...)
	switch {
	case c.GetRecursiveReadOnly() && !b.in.Handler.RecursiveReadOnly:
		return specs.Mount{}, fmt.Errorf(
			"%w: mount %q: this runtime handler cannot make recursive read-only mounts", ErrRRO, c.GetContainerPath(),
		)
	case c.GetRecursiveReadOnly():
		options = append(options, "rro")
	case c.GetReadonly(), c.GetImage() != nil: // "All image mounts are per feature definition readonly."
		options = append(options, "ro")
	}
	extra, err := mountOptions(c)
	if err != nil {
		return specs.Mount{}, err
	}
	mount := specs.Mount{
		Destination: path.Clean(c.GetContainerPath()), Type: "bind", Source: m.Source, Options: append(options, extra...),
	}
	return mount, b.idmap(&mount, c)
}

// checkMount rejects mounts that the CRI's comments on Mount rule out.
func checkMount(m Mount) error {
	c := m.Config
	if err := absolute("container path", c.GetContainerPath()); err != nil {
		return err
	}
	to := path.Clean(c.GetContainerPath())
	switch {
	case to == "/":
		return invalid("a volume cannot be mounted over the container's root")
	case m.Source == "":
		return invalid("mount %q has no source", to)
	case c.GetImage() != nil && c.GetHostPath() != "":
		return invalid("mount %q names both an image and a host path", to)
	case c.GetRecursiveReadOnly() && !c.GetReadonly():
		return invalid("mount %q: recursive_read_only needs readonly", to)
	case c.GetRecursiveReadOnly() && c.GetPropagation() != cri.MountPropagation_PROPAGATION_PRIVATE:
		return invalid("mount %q: recursive_read_only needs private propagation", to)
	}
	return checkText("source of mount "+to, m.Source)
}

// propagation returns the mount's propagation, and raises that of the root filesystem as far as it requires.
// host.Mounts has checked that the source is shared.
func (b *builder) propagation(c *cri.Mount) ([]string, error) {
	root := &b.spec.Linux.RootfsPropagation
	switch p := c.GetPropagation(); p {
	case cri.MountPropagation_PROPAGATION_PRIVATE:
		return []string{"rprivate"}, nil
	case cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if *root != "rshared" {
			*root = "rslave"
		}
		return []string{"rslave"}, nil
	case cri.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		*root = "rshared"
		return []string{"rshared"}, nil
	default:
		return nil, invalid("mount %q: unknown propagation %v", c.GetContainerPath(), p)
	}
}

// mountOptions returns the options of KEP-5855, and those of every image volume. All others have fields of their own,
// or could override one.
func mountOptions(c *cri.Mount) ([]string, error) {
	var out []string
	if c.GetImage() != nil { // what its author has made must not be more than files
		out = append(out, "nosuid", "nodev")
	}
	for _, o := range c.GetMountOptions() {
		if !slices.Contains([]string{"noexec", "nosuid", "nodev"}, o) {
			return nil, invalid("mount %q: option %q is not one of noexec, nosuid, nodev", c.GetContainerPath(), o)
		}
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out, nil
}

// idmap sets the mount's id mappings. An image volume has none: the image store has mapped its files to the pod's user
// namespace already.
func (b *builder) idmap(mount *specs.Mount, c *cri.Mount) error {
	uids, gids := c.GetUidMappings(), c.GetGidMappings()
	switch {
	case len(uids) == 0 && len(gids) == 0, c.GetImage() != nil:
		return nil
	case len(uids) == 0 || len(gids) == 0:
		return invalid("mount %q: id mappings need both users and groups", mount.Destination)
	case !b.in.Handler.UserNamespaces:
		return unsupported("mount %q: this runtime handler has no id-mapped mounts", mount.Destination)
	}
	var err error
	if mount.UIDMappings, err = IDMappings(uids); err != nil {
		return err
	}
	mount.GIDMappings, err = IDMappings(gids)
	return err
}

// IDMappings converts the CRI's id mappings. Empty ranges and ranges that do not fit 32 bits are errors.
func IDMappings(list []*cri.IDMapping) ([]specs.LinuxIDMapping, error) {
	const ids = 1 << 32
	var out []specs.LinuxIDMapping
	for _, m := range list {
		length := uint64(m.GetLength())
		if length == 0 || uint64(m.GetHostId())+length > ids || uint64(m.GetContainerId())+length > ids {
			return nil, invalid(
				"id mapping of %d ids from %d to %d is empty or too long", length, m.GetContainerId(), m.GetHostId(),
			)
		}
		out = append(out, specs.LinuxIDMapping{ContainerID: m.GetContainerId(), HostID: m.GetHostId(), Size: m.GetLength()})
	}
	return out, nil
}
