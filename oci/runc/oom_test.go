package runc

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
)

// TestOOMKillOfACgroupThatIsGone: systemd has removed the container's cgroup; the pod's counter is used.
func TestOOMKillOfACgroupThatIsGone(t *testing.T) {
	for name, below := range map[string]string{"runc": "cri-podd-4711.scope", "crun": "crun-4711.scope/container"} {
		t.Run(name, func(t *testing.T) {
			pod, bundleDir := t.TempDir(), bundle{driver.Bundle(t.TempDir())}
			count := func(dir, kills string) {
				write(t, filepath.Join(pod, dir, "memory.events"), "oom 9\noom_kill "+kills+"\n")
			}
			own := cgroups.Dirs{"": filepath.Join(pod, below)}
			scope, _, _ := strings.Cut(below, "/")
			for _, dir := range []string{own[""], filepath.Join(pod, "other.scope")} {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			count("", "5")
			count("other.scope", "2") // three were in cgroups that are gone
			count(below, "0")
			rec := record{Cgroups: own, PodOOMs: own.OOMBaseline("4711")}
			if want := (cgroups.OOMBaseline{Cgroup: pod, Lost: 3}); rec.PodOOMs != want {
				t.Fatalf("OOMBaseline = %+v, want %+v", rec.PodOOMs, want)
			}
			check := func(when string, code int32, want bool) {
				t.Helper()
				write(t, bundleDir.File("exit"), strconv.Itoa(int(code)))
				exit := oci.Exit{Code: code}
				if describeLimits(bundleDir, rec, &exit); exit.OOM != want {
					t.Errorf("%s: OOM with exit code %d = %v, want %v", when, code, exit.OOM, want)
				}
			}
			count("", "6")
			check("its own cgroup is there and has none", driver.KilledCode, false)
			if err := os.RemoveAll(filepath.Join(pod, scope)); err != nil {
				t.Fatal(err)
			}
			check("one more in the pod", driver.KilledCode, true)
			check("one more in the pod", 1, false)
			count("other.scope", "3")
			check("it was the other one's", driver.KilledCode, false)
			if err := os.RemoveAll(pod); err != nil {
				t.Fatal(err)
			}
			check("the pod's is gone too", driver.KilledCode, false)
		})
	}
	if got := (cgroups.Dirs{"memory": "/no/such", "": "/no/such"}).OOMBaseline("4711"); got != (cgroups.OOMBaseline{}) {
		t.Errorf("OOMBaseline of cgroup v1 = %+v, want none", got)
	}
}
