package networktest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// CheckNode fails the test if at its end the node has links, firewall rules or namespace mounts that it does not have
// now. Chains that plugins make once for all pods, and the rules that jump to them, are ignored.
func CheckNode(t testing.TB) {
	t.Helper()
	NeedNode(t)
	before := nodeState(t)
	t.Cleanup(func() {
		for what, after := range nodeState(t) {
			for _, line := range after {
				if !slices.Contains(before[what], line) {
					t.Errorf("leaked %s: %s", what, line)
				}
			}
		}
	})
}

// CheckFiles fails the test if at its end there are files of plugins or podd about pods below dir.
func CheckFiles(t testing.TB, dir string) {
	t.Helper()
	t.Cleanup(func() {
		for _, file := range files(t, dir) {
			t.Errorf("leaked file: %s", file)
		}
	})
}

func nodeState(t testing.TB) map[string][]string {
	t.Helper()
	state := map[string][]string{"firewall rule": append(rules(t, "iptables-save"), rules(t, "ip6tables-save")...)}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		state["link"] = append(state["link"], l.Type()+" "+l.Attrs().Name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); slices.Contains(f, "nsfs") {
			state["mount"] = append(state["mount"], f[4])
		}
	}
	return state
}

// rules returns the rules, without the chains, that command prints.
func rules(t testing.TB, command string) []string {
	t.Helper()
	out, err := exec.Command(command).Output()
	if err != nil {
		t.Fatalf("%s (is iptables installed?): %v", command, err)
	}
	var rules []string
	for line := range strings.Lines(string(out)) {
		// A rule that only jumps to a shared chain stays, as the chain does.
		if strings.HasPrefix(line, "-A") && !strings.Contains(line, "-j CNI-HOSTPORT-") &&
			!strings.Contains(line, "-j CNI-FORWARD") &&
			!strings.Contains(line, "-A CNI-HOSTPORT-SETMARK") && !strings.Contains(line, "-A CNI-HOSTPORT-MASQ") &&
			!strings.Contains(line, "-j CNI-ADMIN") {
			rules = append(rules, fmt.Sprintf("%s %s", command, strings.TrimSpace(line)))
		}
	}
	return rules
}

// files returns the files of plugins and podd about pods below dir.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		// host-local leaves a lock and the last address that it allocated.
		if name := d.Name(); name != "lock" && !strings.HasPrefix(name, "last_reserved_ip") {
			found = append(found, path)
		}
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return found
}
