package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/garbage"
)

// makeCgroups makes a cgroup in every hierarchy that lets it, and returns its directories.
func makeCgroups(t *testing.T, path string) []string {
	t.Helper()
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	must(t, err)
	var dirs []string
	for _, h := range hierarchies {
		dir := filepath.Join(h.Mountpoint, path)
		if err := os.Mkdir(dir, 0o755); err == nil {
			dirs = append(dirs, dir)
			t.Cleanup(func() { _ = os.Remove(dir) }) // mostly gone by then
		}
	}
	if len(dirs) == 0 {
		t.Skip("no cgroups can be made here")
	}
	return dirs
}

// TestStrayCgroupsAndMounts: what containers without a record have left is found and freed: cgroups in the cgroup of a
// pod on record, and mounts in podd's own directories. What may be somebody else's is left alone.
func TestStrayCgroupsAndMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cgroups and mounts need root")
	}
	m := newMachine(t)
	e, _ := newEngine(t, m)
	uid := "0123abcd-" + filepath.Base(m.dir)
	own, shared := "/podd-stray-pod"+uid, "/podd-stray-shared-"+filepath.Base(m.dir)
	for name, parent := range map[string]string{"own": own, "shared": shared} {
		cfg := podConfig(name)
		cfg.Metadata.Uid, cfg.Linux.CgroupParent = uid+name[:0], parent
		_, err := e.RunPod(t.Context(), cfg, "")
		must(t, err)
	}
	id, newer := strings.Repeat("ab", 32), strings.Repeat("ef", 32)
	makeCgroups(t, own)
	makeCgroups(t, shared)
	stray := slices.Concat(makeCgroups(t, own+"/podd-"+id), makeCgroups(t, own+"/crio-"+newer))
	spared := slices.Concat(makeCgroups(t, own+"/another"), makeCgroups(t, shared+"/podd-"+strings.Repeat("cd", 32)))
	mounted := filepath.Join(e.paths.Bundle(id), "rootfs")
	must(t, os.MkdirAll(mounted, 0o700))
	must(t, unix.Mount("stray", mounted, "tmpfs", 0, "size=4k"))
	t.Cleanup(func() { _ = host.UnmountBelow(e.node.Run) })

	found, err := e.Check(t.Context())
	must(t, err)
	want := []Finding{
		{Problem: FindingLeak, What: garbage.Cgroup, ID: id}, {Problem: FindingLeak, What: garbage.Cgroup, ID: newer},
		{Problem: FindingLeak, What: garbage.Container, ID: id},
		{Problem: FindingLeak, What: garbage.Mount, ID: id},
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %+v, want %+v", found, want)
	}
	for _, f := range found {
		if f.Remedy() == "" {
			t.Errorf("%+v: it is not said what would be done", f)
		}
	}
	must(t, e.GC(context.WithoutCancel(t.Context())))
	for _, dir := range stray {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is still there", dir)
		}
	}
	for _, dir := range spared {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("what may be somebody else's is gone: %v", err)
		}
	}
	if left, err := host.MountsBelow(e.node.Run); err != nil || len(left) > 0 {
		t.Errorf("MountsBelow = %v, %v, want none", left, err)
	}
}
