package vmm

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// virtiofsd returns the program that serves a directory to QEMU and its arguments: the one written in Rust, of Debian
// 13, or that of QEMU 7. stat reports whether a file exists where it will run.
func virtiofsd(exists func(string) bool, shared string) []string {
	const inRust, inC = "/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"
	if exists(inRust) {
		return []string{
			inRust, "--fd=3", "--shared-dir=" + shared, "--cache=auto", "--sandbox=chroot", "--announce-submounts", "--xattr",
		}
	}
	return []string{
		inC, "--fd=3", "-f", "-o", "source=" + shared + ",cache=auto,sandbox=chroot,announce_submounts,xattr",
	}
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
		args = virtiofsd(func(file string) bool { _, err := os.Stat(file); return err == nil }, c.Shared)
		return nil
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
	cmd.Stdout, cmd.Stderr = m.Console, m.Console
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := s.Start(cmd); err != nil {
		return nil, err
	}
	m.helpers = append(m.helpers, cmd)
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, errors.New("not a unix socket")
	}
	return unix.File()
}
