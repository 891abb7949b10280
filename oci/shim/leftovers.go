package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/process"
)

// bundleProcesses returns the processes whose working directory is the bundle: its shim, and programs that the shim has
// just started. This finds a shim without a record, and verifies one.
//
// The file system of a process can belong to a server that hangs, so it is not touched before the path is right, and
// then without asking a server. The directories are compared, not only their paths: a container can have a directory
// with the same path.
func bundleProcesses(b bundle) (found []process.Process) {
	path, err := filepath.EvalSymlinks(b.Dir())
	if err != nil {
		return nil
	}
	want, err := cachedStat(path)
	if err != nil {
		return nil
	}
	locals, _ := process.Locals() // none without /proc
	for _, p := range locals {
		if p.Dir != path {
			continue
		}
		have, err := cachedStat(fmt.Sprintf("/proc/%d/cwd", p.Pid))
		if err == nil && have.Ino == want.Ino && have.Dev_major == want.Dev_major && have.Dev_minor == want.Dev_minor {
			found = append(found, p.Process)
		}
	}
	return found
}

// cachedStat returns the device and the inode of a file, as far as the kernel knows them: a file system does not ask
// its server.
func cachedStat(path string) (s unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &s)
	return s, err
}

// listeningSocket returns the socket at which a process in the bundle listens, "" if there is none: the address of a
// shim without a record.
func listeningSocket(b bundle) string {
	for _, p := range bundleProcesses(b) {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", p.Pid))
		if err != nil {
			continue // it has just ended
		}
		own := socketsOf(p.Pid)
		for line := range strings.Lines(string(table)) {
			if inode, path := parseListener(line); path != "" && own[inode] {
				return path
			}
		}
	}
	return ""
}

// socketsOf returns the inodes of the sockets that a process has open.
func socketsOf(pid int) map[string]bool {
	inodes := map[string]bool{}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		link, _ := os.Readlink(fd) // it may have been closed
		if inode, ok := strings.CutPrefix(link, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// listenFlag is the flag of a listening socket in /proc/net/unix: __SO_ACCEPTCON of the kernel's linux/net.h.
const listenFlag = 1 << 16

// parseListener parses a line of /proc/net/unix. It returns the inode and the path of a listening socket whose path
// could be a shim's address, "" for others. The columns are Num, RefCount, Protocol, Flags, Type, St, Inode and Path.
func parseListener(line string) (inode, path string) {
	f := strings.Fields(line)
	if len(f) != 8 {
		return "", ""
	}
	flags, err := strconv.ParseUint(f[3], 16, 64)
	if err != nil || flags&listenFlag == 0 {
		return "", ""
	}
	if path, err = parseAddress("unix://" + f[7]); err != nil {
		return "", ""
	}
	return f[6], path
}

// killBundleProcesses kills the processes that run in the bundle.
func killBundleProcesses(ctx context.Context, b bundle) error {
	var errs []error
	for _, p := range bundleProcesses(b) {
		errs = append(errs, p.Kill(ctx))
	}
	return errors.Join(errs...)
}

// shimDelete runs the shim's delete action, which removes the runtime's state of a container without a shim. The exit
// status that it prints is made up, and not used.
func (r *Runtime) shimDelete(ctx context.Context, b bundle) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTimeout)
	defer cancel()
	_, err := r.shimAction(ctx, b, "delete", nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the shim is no longer installed, or the bundle is gone
	}
	return err
}
