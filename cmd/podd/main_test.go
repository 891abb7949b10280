package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/image"
)

// TestMain builds the daemon once: the tests of processes run the real one.
func TestMain(m *testing.M) {
	if image.Init() { // a test pulls a checkpoint
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "podd-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-tags", "containers_image_openpgp,nri_no_wasm,grpcnotrace",
			"-ldflags", "-X main.version=v1.2.3-test -X main.commit=abc", "-o", filepath.Join(dir, "podd"), ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build podd: %v\n%s", err, out)
			return 1
		}
		os.Setenv("PODD_TEST_BINARY", filepath.Join(dir, "podd"))
		return m.Run()
	}())
}
