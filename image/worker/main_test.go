package worker

import (
	"os"
	"testing"

	"go.podman.io/storage/pkg/reexec"
)

// TestMain runs the commands of these tests, and of a pull's process.
func TestMain(m *testing.M) {
	Register()
	if reexec.Init() {
		return
	}
	os.Exit(m.Run())
}
