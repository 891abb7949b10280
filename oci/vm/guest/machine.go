package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// prepareMachine mounts the file systems, loads modules and mounts the directory that the host shares.
func prepareMachine() error {
	if err := leaveInitramfs(); err != nil {
		return fmt.Errorf("leave the initial file system: %w", err)
	}
	if err := os.Setenv("PATH", "/bin"); err != nil {
		return err
	}
	for _, m := range systemMounts() {
		if err := m.mount(); err != nil {
			return err
		}
	}
	for name, target := range deviceLinks() {
		if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	if err := enableControllers(); err != nil {
		return err
	}
	return mount{env.ShareTag, env.SharedDir, "virtiofs", 0, ""}.mount()
}

// leaveInitramfs makes a mount of the root directory the root: nothing can pivot_root(2) away from the first mount.
func leaveInitramfs() error {
	const root = "/root"
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// systemMounts are the file systems that containers and their runtime expect.
func systemMounts() []mount {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return []mount{
		{"proc", "/proc", "proc", plain, ""},
		{"sysfs", "/sys", "sysfs", plain, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "ptmxmode=0666,mode=0620,gid=5"},
		{"mqueue", "/dev/mqueue", "mqueue", plain, ""},
		{"shm", "/dev/shm", "tmpfs", plain, "mode=1777"},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"tmp", "/tmp", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"cgroup2", cgroupRoot, "cgroup2", plain, ""},
	}
}

// deviceLinks are links in /dev, by name.
func deviceLinks() map[string]string {
	return map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1",
		"/dev/stderr": "/proc/self/fd/2",
	}
}

func (m mount) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data)
	if err != nil && !errors.Is(err, unix.EBUSY) { // the kernel may have mounted it
		return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
	}
	return nil
}

// loadModules loads the modules of the image in the order of their names, and removes their files, which take memory.
func loadModules() error {
	files, err := filepath.Glob(env.ModuleDir + "/*.ko")
	if err != nil {
		return err
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %s: %w", filepath.Base(file), err)
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

// cgroupRoot is where the cgroups are.
const cgroupRoot = "/sys/fs/cgroup"

// enableControllers lets the cgroups of containers have all controllers of this kernel.
func enableControllers() error {
	const root = cgroupRoot + "/"
	data, err := os.ReadFile(root + "cgroup.controllers")
	if err != nil {
		return fmt.Errorf("cgroup controllers: %w", err)
	}
	for name := range strings.FieldsSeq(string(data)) {
		// A controller that cannot be used limits nothing; the runtime reports it if a container asks for it.
		_ = os.WriteFile(root+"cgroup.subtree_control", []byte("+"+name), 0)
	}
	return nil
}
