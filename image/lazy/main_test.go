package lazy

import (
	"os"
	"testing"

	"go.podman.io/storage/pkg/reexec"
)

// TestMain lets Client run this program again.
func TestMain(m *testing.M) {
	Register()
	if reexec.Init() {
		return
	}
	os.Exit(m.Run())
}
