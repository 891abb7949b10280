package rootfs

import (
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"go.podman.io/storage/pkg/idmap"
	"go.podman.io/storage/pkg/idtools"
	"golang.org/x/sys/unix"
)

// idMap is the id mapping of a user namespace. A nil idMap is the identity.
type idMap struct {
	uids, gids []idtools.IDMap
}

// newIDMap converts the mappings of a request; nil if there are none.
func newIDMap(uids, gids []specs.LinuxIDMapping) (*idMap, error) {
	if len(uids) == 0 && len(gids) == 0 {
		return nil, nil
	}
	m := &idMap{uids: convertMaps(uids), gids: convertMaps(gids)}
	if hostID(m.uids, 0) < 0 || hostID(m.gids, 0) < 0 {
		return nil, fmt.Errorf("id mappings have no root: %w", errdefs.ErrInvalidArgument)
	}
	return m, nil
}

func convertMaps(in []specs.LinuxIDMapping) []idtools.IDMap {
	var out []idtools.IDMap
	for _, m := range in {
		out = append(out, idtools.IDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	return out
}

// hostID returns the host's id for an id of the container, -1 if it is not mapped.
func hostID(maps []idtools.IDMap, id int) int {
	for _, m := range maps {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return m.HostID + id - m.ContainerID
		}
	}
	return -1
}

func (m *idMap) rootGID() int { return hostID(m.gids, 0) }

// owner returns the host's owner of a file that belongs to uid:gid in the image. Unmapped ids become root's.
func (m *idMap) owner(uid, gid int) (int, int) {
	if m == nil {
		return uid, gid
	}
	u, g := hostID(m.uids, uid), hostID(m.gids, gid)
	if u < 0 {
		u = hostID(m.uids, 0)
	}
	if g < 0 {
		g = hostID(m.gids, 0)
	}
	return u, g
}

// bind mounts source on target with shifted ids (mount_setattr(2), MOUNT_ATTR_IDMAP; Linux 5.19 for layers of an
// overlay). The user namespace that carries the mapping needs a process; it exits at the end of bind.
func (m *idMap) bind(source, target string) error {
	pid, end, err := idmap.CreateUsernsProcess(m.uids, m.gids)
	if err != nil {
		return fmt.Errorf("make user namespace: %w", err)
	}
	defer end()
	userns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer userns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: source, Err: err}
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(userns.Fd()), Propagation: unix.MS_PRIVATE,
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("shift the ids of %s: %w: %w", source, err, errdefs.ErrFailedPrecondition)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}
