package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/opencontainers/selinux/go-selinux/label"
	"go.podman.io/storage/pkg/unshare"
	"golang.org/x/sys/unix"
)

// Overlay is a filesystem to mount: an image's layers, with an upper directory on top if writable.
type Overlay struct {
	Dir      string   // has merged, and diff and work
	Lowers   []string // directories of layers, top first
	Writable bool
	Label    string // of SELinux
	ids      *idMap
	// oldKernel is set once a mount by parts has failed, as before Linux 6.7. Nil: always try.
	oldKernel *atomic.Bool
}

// makeDirs makes the directories. The root of the mount shows the attributes of the upper directory, so that gets those
// of the image's root directory.
func (o *Overlay) makeDirs() error {
	mode, uid, gid := os.FileMode(0o755), 0, 0
	if len(o.Lowers) > 0 {
		info, err := os.Stat(o.Lowers[0])
		if err != nil {
			return fmt.Errorf("layer: %w", err)
		}
		mode = info.Mode() & (os.ModePerm | os.ModeSticky | os.ModeSetgid | os.ModeSetuid)
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			uid, gid = int(st.Uid), int(st.Gid)
		}
	}
	if err := os.Mkdir(filepath.Join(o.Dir, mergedName), 0o700); err != nil {
		return err
	}
	uid, gid = o.ids.owner(uid, gid)
	name := upperName
	if !o.Writable {
		// A read-only overlay needs at least two layers. The empty one is the top one, as the root has its attributes
		// too.
		name = emptyName
	} else if err := os.Mkdir(filepath.Join(o.Dir, workName), 0o700); err != nil {
		return err
	}
	top := filepath.Join(o.Dir, name)
	if err := os.Mkdir(top, 0o700); err != nil {
		return err
	}
	if err := os.Lchown(top, uid, gid); err != nil {
		return err
	}
	return os.Chmod(top, mode)
}

// ShiftsIDs reports whether the layers are for a user namespace.
func (o *Overlay) ShiftsIDs() bool { return o.ids != nil }

// Mount mounts the overlay on merged.
func (o *Overlay) Mount() (err error) {
	lowers := o.Lowers
	if o.ids != nil && len(lowers) > 0 {
		mapped := filepath.Join(o.Dir, mappedName)
		if lowers, err = o.shift(mapped); err != nil {
			return err
		}
		// The overlay keeps a reference to the layers.
		defer func() { err = errors.Join(err, unmount(mapped), os.Remove(mapped)) }()
	}
	if lowers, err = o.complete(lowers); err != nil {
		return err
	}
	if o.oldKernel != nil && o.oldKernel.Load() {
		return o.mountAtOnce(lowers)
	}
	err = o.mountByParts(lowers)
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Linux before 6.7 does not have lowerdir+. The kernel reports that early or, before 6.5, only at the last step.
	if second := o.mountAtOnce(lowers); second != nil {
		return fmt.Errorf("%w (with fsopen: %w)", second, err)
	}
	if o.oldKernel != nil {
		o.oldKernel.Store(true) // each attempt leaves a line in the kernel's log
	}
	return nil
}

// shift mounts the directory of all layers with shifted ids and returns the layers' paths in it.
func (o *Overlay) shift(mapped string) ([]string, error) {
	home := filepath.Dir(filepath.Dir(o.Lowers[0])) // <root>/overlay/<id>/diff
	if err := os.Mkdir(mapped, 0o700); err != nil {
		return nil, err
	}
	if err := o.ids.bind(home, mapped); err != nil {
		return nil, errors.Join(err, os.Remove(mapped))
	}
	var out []string
	for _, lower := range o.Lowers {
		out = append(out, mapped+strings.TrimPrefix(lower, home))
	}
	return out, nil
}

// complete adds the empty layer that the kernel needs: on top of a read-only mount, or as the only lower layer.
func (o *Overlay) complete(lowers []string) ([]string, error) {
	empty := filepath.Join(o.Dir, emptyName)
	switch {
	case !o.Writable && len(lowers) > 0:
		return append([]string{empty}, lowers...), nil
	case len(lowers) > 0:
		return lowers, nil
	case o.Writable:
		return []string{empty}, os.Mkdir(empty, 0o755)
	}
	second := filepath.Join(o.Dir, emptyName+"-2")
	return []string{empty, second}, os.Mkdir(second, 0o755)
}

// option is one mount parameter; a flag if it has no value.
type option struct{ key, value string }

// options returns all parameters but the layers. An index would tie an upper directory to its layers permanently, and a
// kernel would refuse one whose layers have another mount; upper directories are never reused here. In a user namespace
// layers have the attributes user.overlay.*, by the same condition in containers/storage: trusted.* are the node's.
func (o *Overlay) options() []option {
	out := []option{{"index", "off"}}
	if unshare.IsRootless() {
		out = append(out, option{"userxattr", ""})
	}
	if o.Writable {
		out = append(out,
			option{"upperdir", filepath.Join(o.Dir, upperName)}, option{"workdir", filepath.Join(o.Dir, workName)},
			option{"volatile", ""}) // fsync does nothing: no container outlives a reboot
	}
	return out
}

// mountByParts mounts with fsopen(2), one parameter at a time: the only limit on layers is the kernel's 500.
func (o *Overlay) mountByParts(lowers []string) error {
	fsfd, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fsfd)
	longest := maxString
	if !o.Writable || len(strings.Join(lowers, "")) > maxLowers {
		longest = 0
	}
	for _, lower := range lowers {
		if err := setPath(fsfd, "lowerdir+", lower, longest); err != nil {
			return withKernelLog(fsfd, "add layer "+lower, err)
		}
	}
	if err := o.configure(fsfd); err != nil {
		return err
	}
	attrs := 0
	if !o.Writable {
		attrs = unix.MOUNT_ATTR_RDONLY
	}
	mfd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, attrs)
	if err != nil {
		return withKernelLog(fsfd, "fsmount", err)
	}
	defer unix.Close(mfd)
	target := filepath.Join(o.Dir, mergedName)
	if err := unix.MoveMount(mfd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: target, Err: err}
	}
	return nil
}

// configure sets everything but the layers and creates the filesystem.
func (o *Overlay) configure(fsfd int) error {
	for _, opt := range o.options() {
		var err error
		if opt.value == "" {
			err = unix.FsconfigSetFlag(fsfd, opt.key)
		} else {
			err = setPath(fsfd, opt.key, opt.value, maxString)
		}
		if err != nil {
			return withKernelLog(fsfd, "set "+opt.key, err)
		}
	}
	if o.Label != "" {
		if err := unix.FsconfigSetString(fsfd, "context", o.Label); err != nil {
			return withKernelLog(fsfd, "set SELinux context", err)
		}
	}
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return withKernelLog(fsfd, "create overlay", err)
	}
	return nil
}

// maxString is the longest value that fsconfig(2) takes, in bytes.
const maxString = 255

// maxLowers is how many bytes of layers' paths a mount may have; above it the layers get short names, and always in
// image volumes, of which a container may have many. The kernel prints the paths in one line of mountinfo, and
// mountinfo.GetMounts fails at a line of 64 KiB.
const maxLowers = 32 << 10

// setPath sets a parameter to a path, through a short name if the path has more than longest bytes.
func setPath(fsfd int, key, path string, longest int) error {
	if len(path) <= longest {
		return unix.FsconfigSetString(fsfd, key, path)
	}
	fd, short, err := shorten(path)
	if err != nil {
		return err
	}
	defer unix.Close(fd) // the kernel resolves the name at once
	return unix.FsconfigSetString(fsfd, key, short)
}

// shorten opens a directory and returns a name for it that is valid until the file is closed.
func shorten(dir string) (fd int, name string, err error) {
	fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, "/proc/self/fd/" + strconv.Itoa(fd), nil
}

// withKernelLog adds the kernel's messages about a failed step, which it reads from fsopen's file.
func withKernelLog(fsfd int, step string, err error) error {
	buf := make([]byte, 1024)
	n, readErr := unix.Read(fsfd, buf)
	if readErr != nil || n <= 0 {
		return fmt.Errorf("mount overlay: %s: %w", step, err)
	}
	return fmt.Errorf("mount overlay: %s: %w (%s)", step, err, strings.TrimSpace(string(buf[:n])))
}

// mountAtOnce mounts with mount(2), for older kernels. All parameters share one page, so the layers are passed as open
// files, whose names are short.
func (o *Overlay) mountAtOnce(lowers []string) error {
	var names []string
	for _, lower := range lowers {
		fd, name, err := shorten(lower)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		names = append(names, name)
	}
	params := []string{"lowerdir=" + strings.Join(names, ":")}
	for _, opt := range o.options() {
		if opt.value == "" {
			params = append(params, opt.key)
			continue
		}
		params = append(params, opt.key+"="+opt.value)
	}
	flags := uintptr(0)
	if !o.Writable {
		flags = unix.MS_RDONLY
	}
	data := label.FormatMountLabel(strings.Join(params, ","), o.Label)
	if len(data) >= os.Getpagesize() {
		return fmt.Errorf("mount overlay: %d layers are too many for this kernel (before Linux 6.7)", len(lowers))
	}
	if err := unix.Mount("overlay", filepath.Join(o.Dir, mergedName), "overlay", flags, data); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}
