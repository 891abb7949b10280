// Package userns runs tests in user namespaces. Only tests use it.
package userns

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// started tells a test that it is in the namespace.
const started = "PODD_TEST_USER_NAMESPACE"

// Inside reports whether the test is root of a user namespace with 65536 ids, as podd is for an ordinary user, and has
// a mount namespace. If not, it runs the test there, in another process, and fails it if that fails. It needs root.
func Inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(started) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), started+"=1")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 100_000, Size: 65_536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: ids, GidMappings: ids,
		GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a user namespace: %v: %s", err, out)
	}
	return false
}
