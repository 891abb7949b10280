package image_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"
)

// TestMain lets storage run itself in a child, and fails when a test left something mounted.
func TestMain(m *testing.M) {
	if reexec.Init() {
		return
	}
	logrus.SetLevel(logrus.ErrorLevel)
	dir, err := os.MkdirTemp(fastDir(), tempPrefix())
	if err == nil {
		// The race detector makes every process sleep for a second at its end, also the one that unpacks a layer.
		err = errors.Join(os.Setenv("TMPDIR", dir), os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE")))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := max(m.Run(), checkMounts())
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// checkMounts is 1 if something is mounted in a directory of these tests.
func checkMounts() int {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 0
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, tempPrefix()) {
			fmt.Fprint(os.Stderr, "left mounted: ", line)
			code = 1
		}
	}
	return code
}

// tempPrefix begins the names of this process's directories for tests.
func tempPrefix() string { return fmt.Sprintf("podd-image-test-%d-", os.Getpid()) }

// diskDir is the directory for temporary files that was set when the tests began. Those that shift ids use it: a
// tmpfs cannot before Linux 6.3.
var diskDir = os.TempDir()

// fastDir is /dev/shm where that is large enough: stores sync a lot, and disks are slow and shared.
func fastDir() string {
	const enough = 512 << 20
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC || st.Bavail*uint64(st.Bsize) < enough {
		return diskDir
	}
	return "/dev/shm"
}
