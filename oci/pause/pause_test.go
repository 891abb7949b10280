package pause

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/program"
)

// built returns the installed program, made with the C compiler when the build did not embed it.
func built(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rootfs, err := Install(dir)
	if err == nil {
		return filepath.Join(rootfs, "pause")
	}
	if !errors.Is(err, program.ErrNotBuilt) {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pause")
	if out, err := exec.Command("gcc", "-Os", "-static", "-s", "-o", path, "pause.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	return path
}

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "rootfs")
	rootfs, err := Install(dir)
	if errors.Is(err, program.ErrNotBuilt) {
		t.Skip("podd was built without a C compiler")
	}
	if err != nil || rootfs != dir {
		t.Fatalf("Install: %q, %v", rootfs, err)
	}
	for _, name := range []string{"pause", "dev", "proc", "sys", "etc"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// start runs the program as the first process of a new PID namespace.
func start(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// settled waits until the process sleeps, so that its signals are blocked.
func settled(t *testing.T, pid int) {
	t.Helper()
	for range 1000 {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		exe, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
		if strings.Contains(string(b), ") S ") && strings.HasSuffix(exe, "/pause") {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("pause does not sleep")
}

func TestEndsOnSignals(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("PID namespaces need root")
	}
	path := built(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		cmd := start(t, path)
		settled(t, cmd.Process.Pid)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("after %v: %v", sig, err)
		}
	}
}

// TestReapsOrphans lets a shell become pause after it has started a grandchild: pause inherits both.
func TestReapsOrphans(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("PID namespaces need root")
	}
	path := built(t)
	cmd := start(t, "/bin/busybox", "sh", "-c", "(busybox sleep 0.2 & busybox sleep 0.1) & exec "+path)
	pid := cmd.Process.Pid
	settled(t, pid)
	children := "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(pid) + "/children"
	for range 500 {
		b, err := os.ReadFile(children)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) == 0 {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("zombies remain")
}
