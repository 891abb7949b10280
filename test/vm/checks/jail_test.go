package checks

import (
	"os/exec"
	"strings"
	"testing"
)

// TestJail runs those tests of oci/vm/jail on this machine's kernel that depend on it.
func TestJail(t *testing.T) {
	out, err := exec.Command("/payload/bin/jail", "-test.v", "-test.run", "^TestJail").CombinedOutput()
	for _, name := range []string{"TestJailHidesProcesses", "TestJailShowsNothingElse", "TestJailLimitsCapabilities"} {
		if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%s has not passed: %v\n%s", name, err, out)
		}
	}
}
