package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

// HostDevices returns the node's current devices, for privileged containers, except those that each container has of
// its own: terminals, shared memory, message queues.
func HostDevices() ([]spec.Device, error) { return walk("/dev", "/dev", "rwm", own) }

// own reports whether an entry of /dev is each container's own.
func own(rel string) bool {
	switch rel {
	case "pts", "shm", "mqueue", "fd", "console", "ptmx", ".udev", ".lxc", ".lxd-mounts":
		return true
	}
	return false
}

// Devices resolves a container's devices. host_path is a device, or a directory for all devices in it, or a symbolic
// link to either; container_path is the same by default. No permissions mean all. Errors: ErrNotFound for an absent
// path, ErrInvalidArgument for one that is not a device.
func Devices(devs []*cri.Device) ([]spec.Device, error) {
	var out []spec.Device
	for _, d := range devs {
		found, err := devicesOf(d)
		if err != nil {
			return nil, fmt.Errorf("device %q: %w", d.GetHostPath(), err)
		}
		out = append(out, found...)
	}
	return out, nil
}

func devicesOf(d *cri.Device) ([]spec.Device, error) {
	from, to := d.GetHostPath(), d.GetContainerPath()
	if to == "" {
		to = from
	}
	if !filepath.IsAbs(from) || !filepath.IsAbs(to) {
		return nil, invalid("the paths on the host and in the container (%q) must be absolute", to)
	}
	access, err := permissions(d.GetPermissions())
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: the host has no such path", errdefs.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(real); err == nil && info.IsDir() {
		return walk(real, to, access, func(string) bool { return false })
	}
	found, err := device(real, to, access)
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, invalid("it is neither a device nor a directory of devices")
	}
	return []spec.Device{*found}, nil
}

// permissions checks the cgroup access: any of r, w and m, each at most once.
func permissions(p string) (string, error) {
	if p == "" {
		return "rwm", nil
	}
	for i, c := range p {
		if !strings.ContainsRune("rwm", c) || strings.ContainsRune(p[:i], c) {
			return "", invalid("permissions %q are not a choice of r, w and m", p)
		}
	}
	return p, nil
}

// walk lists the devices below a directory. Entries that disappear during the walk are left out.
func walk(from, to, access string, skip func(rel string) bool) ([]spec.Device, error) {
	var out []spec.Device
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case skip(rel) && e.IsDir():
			return fs.SkipDir
		case skip(rel), e.Type()&fs.ModeDevice == 0:
			return nil
		}
		d, err := device(path, filepath.Join(to, rel), access)
		if d != nil {
			out = append(out, *d)
		}
		return err
	})
	return out, err
}

// device describes the device node at path, which is not a symbolic link; nil if it is not a device or does not exist.
func device(path, to, access string) (*spec.Device, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	kind := map[uint32]string{unix.S_IFBLK: "b", unix.S_IFCHR: "c"}[st.Mode&unix.S_IFMT]
	if kind == "" {
		return nil, nil
	}
	return &spec.Device{Access: access, Source: path, Node: specs.LinuxDevice{
		Path: to, Type: kind, Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
		FileMode: new(fs.FileMode(st.Mode & 0o777)), UID: new(st.Uid), GID: new(st.Gid),
	}}, nil
}
