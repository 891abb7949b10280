package networktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network/networktest/failpoint"
	"github.com/podd-project/podd/oci/thread"
)

// nodeVariable is set in the process that runs in its own network namespace.
const nodeVariable = "PODD_TEST_NODE"

// Main runs a package's tests; TestMain calls it and passes the result to os.Exit. Run by root, the tests get their own
// network and mount namespaces: bridges, firewall rules and forwarding do not affect the machine, and disappear with
// the process. The test binary is also the failpoint plugin.
func Main(m *testing.M) int {
	failpoint.Run()
	if os.Geteuid() != 0 || os.Getenv(nodeVariable) != "" {
		return m.Run()
	}
	runtime.LockOSThread() // Pdeathsig is about the thread
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), nodeVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil { // it was not started
			fmt.Fprintln(os.Stderr, err)
		}
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// NeedNode skips a test that needs the namespaces of Main if there are none because the user is not root.
func NeedNode(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if os.Getenv(nodeVariable) == "" {
		t.Fatal("TestMain does not call networktest.Main")
	}
}

// Plugins returns the directory of the real CNI plugins: $PODD_CNI_BIN, or bin/cni of the repository.
func Plugins(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PODD_CNI_BIN")
	if dir == "" {
		dir = filepath.Join(repository(t), "bin", "cni")
	}
	for _, name := range []string{"bridge", "host-local", "portmap", "loopback", "firewall", "bandwidth"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Fatalf("CNI plugin %s is missing, run make tools: %v", name, err)
		}
	}
	return dir
}

// repository returns the root of the source tree, found from the working directory, which is that of the tested
// package.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/podd-project/podd\n") {
			return dir
		}
	}
	t.Fatal("the tests do not run inside podd's source tree")
	return ""
}

// NewNetns makes a network namespace, pinned on a file that is deleted after the test.
func NewNetns(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := pinNewNetns(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
			t.Error(err)
		}
	})
	return path
}

func pinNewNetns(path string) error {
	return thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
}

// InNetns runs f on a thread in the network namespace at path. Sockets that f makes stay in it.
func InNetns(path string, f func() error) error {
	return thread.Run(func() error {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}
