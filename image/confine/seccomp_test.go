package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// confined is set in the processes of TestSockets: "restrict", then "restricted".
const confined = "PODD_TEST_CONFINED"

// TestSockets: a confined process, which is root, cannot connect to the sockets of other services of root.
func TestSockets(t *testing.T) {
	switch os.Getenv(confined) {
	case "restrict":
		t.Setenv(confined, "restricted")
		policy := Policy{FileSize: 1 << 30, CPU: 60, OpenFiles: 1000, Read: []string{"/etc", "/usr", "/proc"},
			Execute: []string{"/lib", "/lib64"}} // the libraries of a test with cgo
		fmt.Println(policy.Exec(os.Args, os.Environ()))
		os.Exit(1)
	case "restricted":
		fmt.Println("unix", denied(unix.AF_UNIX), "inet", denied(unix.AF_INET), "inet6", denied(unix.AF_INET6))
		_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		fmt.Println("pair", errors.Is(err, unix.EPERM))
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		t.Skip("capabilities are dropped by root")
	}
	child := exec.Command("/proc/self/exe", "-test.run=^TestSockets$")
	child.Env = append(os.Environ(), confined+"=restrict")
	child.SysProcAttr = Attributes()
	out, err := child.CombinedOutput()
	const want = "unix true inet false inet6 false\npair true"
	if err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("denied: %s, %v, want %s", out, err, want)
	}
}

func denied(family int) bool {
	fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.Close(fd)
	}
	return errors.Is(err, unix.EPERM)
}
