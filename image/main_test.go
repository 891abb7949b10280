package image_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
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
	if slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.fuzzworker") }) {
		os.Exit(m.Run()) // killed when its time is over, it could not unmount anything
	}
	code := onTmpfs(m.Run)
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, tempPrefix()) {
			fmt.Fprint(os.Stderr, "left mounted: ", line)
			code = 1
		}
	}
	os.Exit(code)
}

// tempPrefix begins the names of this process's directories for tests.
func tempPrefix() string { return fmt.Sprintf("podd-image-test-%d-", os.Getpid()) }

// diskDir is the directory for temporary files that was set when the tests began. Those that shift ids use it: a
// tmpfs cannot before Linux 6.3.
var diskDir = os.TempDir()

// onTmpfs runs the tests with a tmpfs for their files: stores sync a lot, and disks are slow and shared.
func onTmpfs(run func() int) int {
	dir, err := os.MkdirTemp("", tempPrefix())
	if err == nil {
		err = unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777")
	}
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := run()
	if err := errors.Join(unix.Unmount(dir, 0), os.Remove(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
