package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// restrictMounts moves the calling thread to a new mount namespace, where /proc shows no other processes, and
// mounts the Data directories on themselves with the flags. An unmount elsewhere unmounts here too, if it is
// on a shared mount, as on nodes with systemd.
func (p Policy) restrictMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("make the mounts slaves: %w", err)
	}
	if err := mountProc(); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, dir := range p.Data {
		if err := mountData(dir); err != nil {
			return fmt.Errorf("mount %s without devices: %w", dir, err)
		}
	}
	return nil
}

// mountProc shows the processes of the PID namespace only: CAP_SYS_ADMIN is enough to read the environment of every
// process, which often has secrets. Before Linux 5.8 it shows the rest of /proc too.
func mountProc() error {
	const flags = unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	err := unix.Mount("proc", "/proc", "proc", flags, "subset=pid")
	if errors.Is(err, unix.EINVAL) {
		return unix.Mount("proc", "/proc", "proc", flags, "")
	}
	return err
}

// mountData mounts dir with everything below it on itself. Before Linux 5.12 the flags are not set for mounts below it.
func mountData(dir string) error {
	if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	err := unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, &attr)
	if errors.Is(err, unix.ENOSYS) {
		const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
		return unix.Mount("", dir, "", flags, "")
	}
	return err
}
