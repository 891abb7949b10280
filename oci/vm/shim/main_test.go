package shim

import (
	"os"
	"testing"

	"github.com/podd-project/podd/oci/vm/jail"
)

func TestMain(m *testing.M) {
	jail.MaybeInit()
	os.Exit(m.Run())
}
