package release

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSystemd boots a virtual machine where systemd runs podd as the deb installs it, and 20 pods run across an upgrade
// and a downgrade: test/vm/checks.TestPackages. critest's specs of conformance and AppArmor follow. Then the package is
// purged, and nothing is left.
func TestSystemd(t *testing.T) {
	older := before(t)
	out := run(t, []string{
		"VM_DEB=" + deb(t, "amd64"), "VM_DEB_BEFORE=" + filepath.Join(older, "podd_"+previous+"-1_amd64.deb"),
	}, `../vm/run.sh packages 2>&1`)
	t.Log(out)
	for _, want := range []string{"PASS: TestPackages", "passed: critest with runc", "passed: purge"} {
		if !strings.Contains(out, want) {
			t.Errorf("the machine printed no %q", want)
		}
	}
}
