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
)

// The programs that serve a directory by virtiofs: that of Debian 13, and that of QEMU 7.
const (
	virtiofsdRust = "/usr/libexec/virtiofsd"
	virtiofsdC    = "/usr/lib/qemu/virtiofsd"
)

// virtiofsd returns the program that serves a directory to QEMU and its arguments: the one written in Rust, of Debian
// 13, or that of QEMU 7. exists reports whether a file exists where it will run, files is how many it may open.
//
// The mounts in the directory are not announced to the guest, which then has one file system. Otherwise the end of a
// container unmounts its mounts, and Linux 6.1 dies of one with requests in flight ("VFS: Busy inodes after unmount of
// virtiofs", fs/super.c): the process that does it never ends.
func virtiofsd(exists func(string) bool, shared string, files uint64) []string {
	limit := fmt.Sprintf("--rlimit-nofile=%d", files)
	if exists(virtiofsdRust) {
		return []string{
			virtiofsdRust, limit, "--fd=3", "--shared-dir=" + shared, "--cache=auto", "--sandbox=chroot",
			"--xattr",
		}
	}
	return []string{
		virtiofsdC, limit, "--fd=3", "-f", "-o", "source=" + shared + ",cache=auto,sandbox=chroot,xattr",
	}
}

// fileLimit is how many files virtiofsd may have open: one for each file that the guest's kernel knows. By default it
// raises its limit to a million, so that one guest could use up those of the host.
const fileLimit = 64 << 10

// maxFiles is fileLimit, or less if virtiofsd cannot have as many: it has no privilege to raise the hard limit.
func maxFiles() (uint64, error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, fmt.Errorf("limit of open files: %w", err)
	}
	return min(fileLimit, r.Max), nil
}

// startVirtiofsd starts it as a helper of the machine, and returns a connection for QEMU.
func startVirtiofsd(s Starter, c Config, m *Machine) (*os.File, error) {
	var listener *net.UnixListener
	var conn net.Conn
	var args []string
	path := filepath.Join(c.Temp, "virtiofsd.sock")
	err := s.Do(func() (err error) {
		if listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
			return err
		}
		if conn, err = net.Dial("unix", path); err != nil {
			return err
		}
		files, err := maxFiles()
		args = virtiofsd(exists, c.Shared, files)
		return err
	})
	if listener != nil {
		defer listener.Close()
	}
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	passedOn, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer passedOn.Close()
	cmd := exec.Command(args[0], slices.Clone(args[1:])...)
	cmd.ExtraFiles = []*os.File{passedOn}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := m.startHelper(s, cmd); err != nil {
		return nil, err
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	return socket.File()
}
