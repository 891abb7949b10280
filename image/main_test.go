package image_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"go.podman.io/storage/pkg/reexec"
)

// TestMain lets storage run itself in a child, and fails when a test left something mounted.
func TestMain(m *testing.M) {
	if reexec.Init() {
		return
	}
	logrus.SetLevel(logrus.ErrorLevel)
	code := m.Run()
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, os.TempDir()+"/Test") || strings.Contains(line, os.TempDir()+"/Benchmark") {
			fmt.Fprint(os.Stderr, "left mounted: ", line)
			code = 1
		}
	}
	os.Exit(code)
}
