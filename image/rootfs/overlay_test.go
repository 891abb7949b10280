package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/userns"
)

// layersOnDisk makes layer directories like storage's, with one file each.
func layersOnDisk(t *testing.T, home string, n int) []string {
	t.Helper()
	var out []string
	for i := range n {
		dir := filepath.Join(home, fmt.Sprintf("%064d", i), "diff")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("f", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		out = append(out, dir)
	}
	return out
}

// TestOverlayOfOldKernels: the same mounts with mount(2), which kernels before 6.7 need.
func TestOverlayOfOldKernels(t *testing.T) {
	for name, c := range map[string]struct {
		layers   int
		writable bool
	}{
		"one": {1, true}, "two": {2, true}, "many": {150, true}, "one read-only": {1, false}, "many read-only": {150, false},
	} {
		t.Run(name, func(t *testing.T) {
			home, dir := t.TempDir(), t.TempDir()
			o := Overlay{Dir: dir, Lowers: layersOnDisk(t, home, c.layers), Writable: c.writable}
			if err := o.makeDirs(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := unmount(filepath.Join(dir, mergedName)); err != nil {
					t.Error(err)
				}
			})
			lowers, err := o.complete(o.Lowers)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.mountAtOnce(lowers); err != nil {
				t.Fatal(err)
			}
			checkMerged(t, filepath.Join(dir, mergedName), c.layers, c.writable)
		})
	}
	t.Run("too many", func(t *testing.T) {
		dir := t.TempDir()
		o := Overlay{Dir: dir, Lowers: layersOnDisk(t, t.TempDir(), 300), Writable: true}
		if err := o.makeDirs(); err != nil {
			t.Fatal(err)
		}
		if err := o.mountAtOnce(o.Lowers); err == nil {
			t.Error("300 layers fit into a page")
		}
	})
}

// TestOverlayOfLongPaths: an image of many layers does not keep others from reading mountinfo.
func TestOverlayOfLongPaths(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	o := Overlay{Dir: dir, Lowers: layersOnDisk(t, home, 400), Writable: true}
	if err := o.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if err := o.mountByParts(o.Lowers); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		t.Skipf("this kernel has no lowerdir+: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(dir, mergedName)
	_, listErr := mountinfo.GetMounts(nil)
	checkMerged(t, merged, 400, true)
	if err := unmount(merged); err != nil {
		t.Fatal(err)
	}
	if listErr != nil {
		t.Errorf("error %v of a list of all mounts, want none", listErr)
	}
}

// TestOverlayOfVolume: image volumes, of which a container may have many, have short lines of mountinfo.
func TestOverlayOfVolume(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	o := Overlay{Dir: dir, Lowers: layersOnDisk(t, home, 3)}
	if err := o.makeDirs(); err != nil {
		t.Fatal(err)
	}
	if err := o.mountByParts(o.Lowers); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		t.Skipf("this kernel has no lowerdir+: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(dir, mergedName)
	mounts, listErr := mountinfo.GetMounts(mountinfo.SingleEntryFilter(merged))
	checkMerged(t, merged, 3, false)
	if err := unmount(merged); err != nil {
		t.Fatal(err)
	}
	if listErr != nil || len(mounts) != 1 || strings.Contains(mounts[0].VFSOptions, home) {
		t.Errorf("mount = %+v, %v; want one without the paths of its layers", mounts, listErr)
	}
}

func checkMerged(t *testing.T, merged string, layers int, writable bool) {
	t.Helper()
	entries, err := os.ReadDir(merged)
	if err != nil || len(entries) != layers {
		t.Errorf("%d files, %v; want %d", len(entries), err, layers)
	}
	err = os.WriteFile(filepath.Join(merged, "new"), nil, 0o644)
	if (err == nil) != writable {
		t.Errorf("write = %v, want success: %v", err, writable)
	}
}

// TestOverlayErrorsLeaveNothingMounted: after a failure of any step.
func TestOverlayErrorsLeaveNothingMounted(t *testing.T) {
	ids, err := newIDMap([]specs.LinuxIDMapping{{HostID: 1000, Size: 1000}},
		[]specs.LinuxIDMapping{{HostID: 1000, Size: 1000}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	good := layersOnDisk(t, t.TempDir(), 2)
	for name, o := range map[string]Overlay{
		"missing layer":  {Lowers: []string{good[0], good[1] + "x"}},
		"bad label":      {Lowers: good, Label: string(make([]byte, 300))},
		"missing work":   {Lowers: good, Writable: true},
		"missing mapped": {Lowers: []string{filepath.Join(dir, "no/id/diff")}},
	} {
		o.ids = ids
		o.Dir = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(o.Dir, mergedName), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := o.Mount(); err == nil {
			t.Errorf("%s: mount succeeded, want an error", name)
		}
		for _, part := range []string{mergedName, mappedName} {
			if err := unix.Unmount(filepath.Join(o.Dir, part), unix.MNT_DETACH); err == nil {
				t.Errorf("%s: %s was left mounted", name, part)
			}
		}
	}
}

func TestIDMap(t *testing.T) {
	m, err := newIDMap(
		[]specs.LinuxIDMapping{{ContainerID: 0, HostID: 1000, Size: 10}, {ContainerID: 10, HostID: 5000, Size: 10}},
		[]specs.LinuxIDMapping{{ContainerID: 0, HostID: 2000, Size: 10}})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[[2]int][2]int{
		{0, 0}: {1000, 2000}, {9, 9}: {1009, 2009}, {10, 1}: {5000, 2001}, {19, 0}: {5009, 2000},
		{20, 0}: {1000, 2000}, {0, 10}: {1000, 2000}, {1 << 30, 1 << 30}: {1000, 2000},
	} {
		if uid, gid := m.owner(in[0], in[1]); uid != want[0] || gid != want[1] {
			t.Errorf("%v: %d:%d, want %v", in, uid, gid, want)
		}
	}
	if m, err := newIDMap(nil, nil); m != nil || err != nil {
		t.Errorf("newIDMap(nil, nil) = %v, %v, want nil", m, err)
	}
	if uid, gid := (*idMap)(nil).owner(3, 4); uid != 3 || gid != 4 {
		t.Errorf("owner(3, 4) without a mapping = %d:%d, want 3:4", uid, gid)
	}
}

// TestWalk: a file with several names counts once, a sparse file with its allocated blocks.
func TestWalk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(file, filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "sparse"), 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	log := logrus.StandardLogger()
	if got := Measure(t.Context(), dir, log); got.Inodes != 4 || got.Bytes < 1<<20 || got.Bytes > 1<<20+64<<10 {
		t.Errorf("%+v, want 4 inodes and a little over a MiB", got)
	}
	if got := Measure(t.Context(), filepath.Join(dir, "none"), log); got != (Size{}) {
		t.Errorf("walk of an absent directory = %+v, want zero", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Measure(ctx, dir, log); got != (Size{}) {
		t.Errorf("walk with a cancelled context = %+v, want zero", got)
	}
}

func TestUsers(t *testing.T) {
	h := newUsers()
	if !h.add("img", "b") || !h.add("img", "a") || !h.add("img", "a") || !h.add("other", "a") {
		t.Fatal("cannot take")
	}
	if users, other := h.BeginRemoval("img"); other != nil || !slices.Equal(users, []string{"a", "b"}) {
		t.Errorf("BeginRemoval = users %v, other %v, want users [a b]", users, other)
	}
	h.remove("img", "a")
	h.removeContainer("b")
	if got := h.Of("img"); !slices.Equal(got, []string{"a"}) {
		t.Errorf("users = %v, want [a]", got)
	}
	h.removeContainer("a")
	if got := h.Of("other"); len(got) != 0 {
		t.Errorf("users after removeContainer = %v, want none", got)
	}
	if users, other := h.BeginRemoval("img"); other != nil || users != nil {
		t.Errorf("BeginRemoval = users %v, other %v, want neither", users, other)
	}
	if _, other := h.BeginRemoval("img"); other == nil {
		t.Error("two removals at once")
	}
	if h.add("img", "c") {
		t.Error("took an image that is being removed")
	}
	h.EndRemoval("img")
	if !h.add("img", "c") {
		t.Error("cannot take after the removal ended")
	}
}

// TestOverlayInUserNamespace: a directory of the image can be replaced, which needs an attribute of the overlay.
func TestOverlayInUserNamespace(t *testing.T) {
	if !userns.Inside(t) {
		return
	}
	dir := t.TempDir()
	layers := layersOnDisk(t, filepath.Join(dir, "overlay"), 1)
	if err := os.Mkdir(filepath.Join(layers[0], "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := Overlay{Dir: dir, Lowers: layers, Writable: true}
	if err := errors.Join(o.makeDirs(), o.Mount()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmount(filepath.Join(dir, mergedName)); err != nil {
			t.Error(err)
		}
	})
	replaced := filepath.Join(dir, mergedName, "d")
	if err := errors.Join(os.Remove(replaced), os.Mkdir(replaced, 0o755)); err != nil {
		t.Errorf("replace a directory of the image: %v", err)
	}
}
