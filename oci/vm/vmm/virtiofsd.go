package vmm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// The programs that serve a directory by virtiofs: that of the guest image, which User-Mode Linux needs, that of Debian
// 13, and that of QEMU 7.
const (
	virtiofsdImage = "/virtiofsd"
	virtiofsdRust  = "/usr/libexec/virtiofsd"
	virtiofsdC     = "/usr/lib/qemu/virtiofsd"
)

// virtiofsd returns the program that serves a directory and its arguments: the one written in Rust, of the guest image
// or of Debian 13, or that of QEMU 7. exists reports whether a file exists where it will run, files is how many it may
// open.
//
// The mounts in the directory are announced to User-Mode Linux, which has a filesystem for each, with its own device
// number: inode numbers of two volumes can be equal, and cp and mv take such files for one. A guest of QEMU has one
// filesystem: Linux 6.1 dies of unmounting one with requests in flight ("VFS: Busy inodes after unmount of virtiofs",
// fs/super.c); the process that does it never ends.
func virtiofsd(exists func(string) bool, shared string, files uint64) []string {
	limit := fmt.Sprintf("--rlimit-nofile=%d", files)
	rust := []string{
		virtiofsdRust, limit, "--fd=3", "--shared-dir=" + shared, "--cache=auto", "--sandbox=chroot", "--posix-acl",
		"--inode-file-handles=never",
	}
	switch {
	case exists(virtiofsdImage):
		rust[0] = virtiofsdImage
		// QEMU knows the tag, and versions before 8.1 die of the option.
		return append(rust, "--tag="+env.ShareTag, "--announce-submounts")
	case exists(virtiofsdRust):
		return append(rust, "--no-announce-submounts")
	}
	return []string{
		virtiofsdC, limit, "--fd=3", "-f", "-o", "source=" + shared + ",cache=auto,sandbox=chroot,xattr,posix_acl",
	}
}

// fileLimit is how many files virtiofsd may have open: one for each file that the guest's kernel knows, which the agent
// has forget files beyond half of it. Their memory counts as the pod's. By default virtiofsd raises its limit to a
// million, so that one guest could use up those of the host.
const fileLimit = 256 << 10

// filesParameter is the kernel's parameter by which the agent knows how many files the guest may know.
func filesParameter() string {
	files, err := maxFiles()
	if err != nil {
		files = fileLimit // not on Linux
	}
	return fmt.Sprintf("%s=%d", env.Files, files/2)
}

// maxFiles is fileLimit, or less if virtiofsd cannot have as many: it has no privilege to raise the hard limit.
func maxFiles() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return min(fileLimit, r.Max), nil
}

// startVirtiofsd starts it as a helper of the machine, and returns the path of its socket.
func startVirtiofsd(s Starter, c Config, m *Machine) (path string, err error) {
	var listening *os.File
	var args []string
	path = filepath.Join(c.Temp, "virtiofsd.sock")
	err = s.Do(func() (err error) {
		if listening, err = listen(path, c.User); err != nil {
			return err
		}
		files, err := maxFiles()
		args = virtiofsd(exists, c.Shared, files)
		return err
	})
	if listening != nil {
		defer listening.Close()
	}
	if err != nil {
		return "", err
	}
	cmd := exec.Command(args[0], slices.Clone(args[1:])...)
	cmd.ExtraFiles = []*os.File{listening}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return path, m.startHelper(s, cmd)
}

// listen makes a socket to which a user may connect.
func listen(path string, user uint32) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chown(path, int(user), int(user)); err != nil {
		return nil, err
	}
	return l.File()
}

// connect returns a connection to a socket.
func connect(s Starter, path string) (*os.File, error) {
	var conn net.Conn
	err := s.Do(func() (err error) { conn, err = net.Dial("unix", path); return err })
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	return socket.File()
}
