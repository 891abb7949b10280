package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// suites are the Debian releases that the deb is for.
var suites = []string{"bookworm", "trixie"}

// TestDebian installs, upgrades, downgrades, uses, wipes and purges the deb in a bare Debian, as testdata/install.sh
// says, and requires that nothing is left. The kernel and cgroups are those of this machine; systemd does not run.
func TestDebian(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root")
	}
	older := before(t)
	for _, suite := range suites {
		t.Run(suite, func(t *testing.T) {
			tar := strings.TrimSpace(run(t, nil, "./chroot.sh "+suite+" 2>/dev/null"))
			root := t.TempDir()
			out := run(t, []string{
				"TAR=" + tar, "ROOT=" + root, "DEB=" + deb(t, "amd64"),
				"PREVIOUS=" + filepath.Join(older, "podd_"+previous+"-1_amd64.deb"),
			}, `
				tar -C "$ROOT" -xf "$TAR"
				cp "$DEB" "$ROOT/tmp/new.deb"
				cp "$PREVIOUS" "$ROOT/tmp/old.deb"
				cp ../../bin/crictl testdata/install.sh "$ROOT/tmp/"
				exec unshare --mount --pid --fork --kill-child --propagation private sh -euc '
					mount --bind "$ROOT" "$ROOT"
					mount --rbind /sys "$ROOT/sys"
					mount --rbind /dev "$ROOT/dev"
					mount -t proc proc "$ROOT/proc"
					mount -t tmpfs -o mode=755 tmpfs "$ROOT/run"
					cd "$ROOT"
					pivot_root . mnt
					umount -l /mnt
					PATH=/usr/sbin:/usr/bin:/sbin:/bin exec /tmp/install.sh' 2>&1`)
			t.Log(out)
			if !strings.Contains(out, "== nothing is left") {
				t.Errorf("install.sh did not reach its end")
			}
		})
	}
}
