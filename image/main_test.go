package image_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image"
)

// TestMain allows storage to re-execute the test binary, and fails if a test left something mounted.
func TestMain(m *testing.M) {
	if image.Init() {
		return
	}
	logrus.SetLevel(logrus.WarnLevel)
	dir, err := os.MkdirTemp(fastDir(), tempPrefix())
	if err == nil {
		// The race detector makes every process sleep for a second at exit, also the one that unpacks a layer.
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

// checkMounts returns 1 if something is mounted in a directory of these tests.
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

// tempPrefix is the prefix of this process's test directories.
func tempPrefix() string { return fmt.Sprintf("podd-image-test-%d-", os.Getpid()) }

// diskDir is the directory for temporary files before TestMain changed it. Tests that shift ids use it: a tmpfs does
// not support that before Linux 6.3.
var diskDir = os.TempDir()

// fastDir is /dev/shm if that is large enough: stores sync a lot, and disks are slow and shared.
func fastDir() string {
	const enough = 512 << 20
	var st unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &st); err != nil || st.Type != unix.TMPFS_MAGIC ||
		st.Bavail*uint64(st.Bsize) < enough {
		return diskDir
	}
	return "/dev/shm"
}
