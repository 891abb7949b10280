package namespaces_test

import (
	"os"
	"testing"

	"github.com/podd-project/podd/sandbox/namespaces"
	"github.com/podd-project/podd/sandbox/namespaces/namespacestest"
)

// TestSuite runs the suite that the engine's fake passes on the real Pinner.
func TestSuite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating and mounting namespaces needs root")
	}
	namespacestest.Suite(t, func(t *testing.T) namespacestest.Namespaces { return namespaces.New("") })
}
