package conmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// conmon opens its log by a path, as root, and follows symbolic links: first <path>, and to reopen it <path>.tmp,
// which it then renames to <path>. If it cannot open or rename, it exits. So it gets a path in the bundle, where only
// root can write, and both names are symbolic links to a file that the caller has opened:
//
//   - At first logName leads to the caller's descriptor. The monitor inherits none, because conmon 2.1 passes inherited
//     descriptors to the runtime, and closes it only when the container has exited.
//   - To reopen, the new log is bound on mountName, and both names lead there. The mount stays when the caller is
//     killed, so that the monitor always finds a file.
//   - At other times nextName leads to /dev/null.
//
// Both names are hard links of one symbolic link. rename(2) leaves such names alone, so nextName is always there.
const (
	logName   = "log"
	nextName  = logName + ".tmp"
	mountName = "log.mount"
	// linkName is where a link is made before it is renamed.
	linkName = "log.link"
)

// linkFirst prepares the names for a monitor that opens log. The caller keeps log open until conmon has forked. Names
// may be left of a restore that a killed podd had begun.
func linkFirst(bundle string, log *os.File) error {
	if log == nil {
		return nil
	}
	descriptor := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), log.Fd())
	for name, target := range map[string]string{logName: descriptor, nextName: os.DevNull} {
		path := filepath.Join(bundle, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link log: %w", err)
		}
		if err := os.Symlink(target, path); err != nil {
			return fmt.Errorf("link log: %w", err)
		}
	}
	return nil
}

// Reopen makes the monitor of the bundle continue in another log, whose content is lost, and returns before it does.
// The caller checks that the monitor has the log open, then calls FinishReopen. errdefs.ErrFailedPrecondition if no
// monitor listens.
func Reopen(bundle string, log *os.File) error {
	if err := FinishReopen(bundle); err != nil {
		return err
	}
	target := filepath.Join(bundle, mountName)
	if err := bindFile(log, target); err != nil {
		return fmt.Errorf("bind log: %w", err)
	}
	if err := linkBoth(bundle, target); err != nil {
		return err
	}
	if err := control(bundle, reopenMessage, 0, 0); err != nil {
		return errors.Join(err, FinishReopen(bundle))
	}
	return nil
}

// bindFile mounts the open file on a file at the path, which is created if it does not exist.
func bindFile(f *os.File, path string) error {
	at, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	at.Close()
	tree, err := unix.OpenTree(int(f.Fd()), "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	return os.NewSyscallError("move_mount", err)
}

// linkBoth makes both names the same symbolic link to target. nextName always exists.
func linkBoth(bundle, target string) error {
	link := filepath.Join(bundle, linkName)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link log: %w", err)
	}
	if err := os.Symlink(target, link); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	name := filepath.Join(bundle, logName)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("link log: %w", err)
	}
	if err := os.Link(link, name); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	if err := os.Rename(link, filepath.Join(bundle, nextName)); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	return nil
}

// FinishReopen removes the leftovers of a Reopen, finished or interrupted. A message that the monitor has not read is
// taken back: a monitor that is stuck must not open the log later, when the caller has given up. It is not an error if
// there is nothing.
func FinishReopen(bundle string) error {
	target := filepath.Join(bundle, mountName)
	if _, err := os.Lstat(target); errors.Is(err, os.ErrNotExist) {
		return nil // no log was reopened
	}
	if err := errors.Join(takeBack(bundle, reopenMessage), linkBoth(bundle, os.DevNull)); err != nil {
		return err
	}
	if err := ReleaseLog(bundle); err != nil {
		return err
	}
	return os.Remove(target)
}

// ReleaseLog unmounts a log that is bound in the bundle. It is not an error if none is.
func ReleaseLog(bundle string) error {
	target := filepath.Join(bundle, mountName)
	for {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return &os.PathError{Op: "unmount", Path: target, Err: err}
		}
	}
}

// SeesMounts reports whether the monitor sees the mounts that this process makes: a monitor of an earlier daemon may be
// in another mount namespace.
func SeesMounts(monitor int) bool {
	theirs, errTheirs := os.Readlink("/proc/" + strconv.Itoa(monitor) + "/ns/mnt")
	ours, errOurs := os.Readlink("/proc/self/ns/mnt")
	return errTheirs == nil && errOurs == nil && theirs == ours
}
