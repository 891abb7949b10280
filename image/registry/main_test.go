package registry

import (
	"os"
	"testing"

	"go.podman.io/storage/pkg/reexec"
)

func TestMain(m *testing.M) {
	Register()
	if reexec.Init() {
		return
	}
	os.Exit(m.Run())
}
