package cgroups

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	container = "podd-4f2c"
	group     = "/kubepods/pod7e9d/" + container
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// treeV1 is a machine with every controller in a v1 hierarchy of its own, and an empty v2 hierarchy.
func treeV1(root string) *Tree {
	h := hierarchies{unified: {dir: root + "/unified", root: "/"}}
	for _, c := range controllers() {
		h[c] = mount{dir: root + "/" + c, root: "/"}
	}
	return newTree(h)
}

func treeV2(root string) *Tree { return newTree(hierarchies{unified: {dir: root, root: "/"}}) }

// withProc gives the tree a /proc where process 4711 is in the group, and names for its devices.
func withProc(t *testing.T, tree *Tree, cgroup string) *Tree {
	t.Helper()
	dir := t.TempDir()
	tree.proc, tree.sys = filepath.Join(dir, "proc"), filepath.Join(dir, "sys")
	must(t, os.MkdirAll(filepath.Join(tree.proc, "4711"), 0o755))
	must(t, os.WriteFile(filepath.Join(tree.proc, "4711/cgroup"), []byte(cgroup), 0o644))
	must(t, os.MkdirAll(filepath.Join(tree.sys, "dev/block"), 0o755))
	must(t, os.Symlink("../../devices/pci/nvme/nvme0n1", filepath.Join(tree.sys, "dev/block/259:0")))
	return tree
}

func procV1(group string) string {
	var b strings.Builder
	for i, c := range controllers() {
		fmt.Fprintf(&b, "%d:%s:%s\n", i+2, c, group)
	}
	return b.String() + "1:name=systemd:/elsewhere\n0::" + group + "\n"
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/" + name)
	must(t, err)
	return dir
}

func open(t *testing.T, g *Group, err error) *Group {
	t.Helper()
	must(t, err)
	t.Cleanup(g.Close)
	return g
}

// everything is what the golden files hold.
type everything struct {
	Path    string
	Usage   Usage
	Details Details
}

func TestGolden(t *testing.T) {
	for name, find := range map[string]func() (*Group, error){
		"v1": func() (*Group, error) {
			return withProc(t, treeV1(testdata(t, "v1")), procV1(group)).Of(4711, "4f2c")
		},
		"v2": func() (*Group, error) {
			return withProc(t, treeV2(testdata(t, "v2")), "0::"+group+"\n").Of(4711, "4f2c")
		},
		"bare": func() (*Group, error) {
			return withProc(t, treeV2(testdata(t, "v2")), "").At("bare/podd-77aa")
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := find()
			g = open(t, g, err)
			var e everything
			e.Path = g.Path()
			e.Usage, err = g.Read()
			must(t, err)
			e.Details, err = g.Details()
			must(t, err)
			if time.Since(e.Usage.At) > time.Minute || time.Since(e.Details.At) > time.Minute {
				t.Errorf("At = %v and %v, want now", e.Usage.At, e.Details.At)
			}
			e.Usage.At, e.Details.At = time.Time{}, time.Time{}
			golden(t, "testdata/"+name+".json", e)
		})
	}
}

func golden(t *testing.T, path string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	must(t, err)
	if *update {
		must(t, os.WriteFile(path, append(got, '\n'), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if strings.TrimSpace(string(want)) != string(got) {
		t.Errorf("got\n%s\nwant %s (run with -update if this is meant):\n%s", got, path, want)
	}
}

// TestPartOfAHierarchy: in a container, a hierarchy shows from the container's own group on.
func TestPartOfAHierarchy(t *testing.T) {
	tree := newTree(hierarchies{"memory": {dir: "/sys/fs/cgroup/memory", root: "/docker/abc"}})
	const want = "/sys/fs/cgroup/memory/kubepods/x"
	for _, group := range []string{"/docker/abc/kubepods/x", "/kubepods/x"} {
		if got := tree.place("memory", group).dir; got != want {
			t.Errorf("directory of %s = %s, want %s", group, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for in, want := range map[string]string{
		"/a/podd-4f2c":                       "/a/podd-4f2c",
		"/a/podd-4f2c/init.scope":            "/a/podd-4f2c",
		"/a.slice/podd-4f2c.scope/container": "/a.slice/podd-4f2c.scope",
		"/a/other":                           "",
		"":                                   "",
	} {
		if got := cut(in, "4f2c"); got != want {
			t.Errorf("cut(%q) = %q, want %q", in, got, want)
		}
	}
	if got := cut("/a", ""); got != "" {
		t.Errorf("cut without a name = %q, want \"\"", got)
	}
}

// TestProcessesBelowCount: an init system in the container has moved the first process into a group of its own.
func TestProcessesBelowCount(t *testing.T) {
	g, err := withProc(t, treeV2(testdata(t, "v2")), "0::"+group+"/init.scope\n").Of(4711, "4f2c")
	g = open(t, g, err)
	if g.Path() != group {
		t.Fatalf("Path = %s, want %s", g.Path(), group)
	}
	pids, err := g.Processes()
	must(t, err)
	if fmt.Sprint(pids) != "[4711 4712 4713]" {
		t.Errorf("Processes = %v, want [4711 4712 4713]", pids)
	}
}

func TestAbsent(t *testing.T) {
	tree := withProc(t, treeV1(testdata(t, "v1")), procV1("/kubepods/pod7e9d/gone-4f2c"))
	for name, find := range map[string]func() (*Group, error){
		"process":     func() (*Group, error) { return tree.Of(99, "4f2c") },
		"other group": func() (*Group, error) { return tree.Of(4711, "ffff") },
		"no dirs":     func() (*Group, error) { return tree.Of(4711, "4f2c") },
		"path":        func() (*Group, error) { return tree.At("/not/there") },
	} {
		if g, err := find(); !errdefs.IsNotFound(err) {
			t.Errorf("%s: group %v, error %v, want ErrNotFound", name, g, err)
		}
	}
}

// TestManyGroupsBelow: a container that makes groups without end is not followed.
func TestManyGroupsBelow(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "wide"), 0o755))
	for i := range maxGroups {
		must(t, os.Mkdir(filepath.Join(dir, "wide", fmt.Sprint(i)), 0o755))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "deep", strings.Repeat("d/", maxDepth+1)), 0o755))
	for _, name := range []string{"wide", "deep"} {
		g, err := treeV2(dir).At(name)
		g = open(t, g, err)
		if pids, err := g.Processes(); !errdefs.IsResourceExhausted(err) {
			t.Errorf("%s: %d processes, error %v, want ErrResourceExhausted", name, len(pids), err)
		}
	}
}

func TestUnified(t *testing.T) {
	g, err := treeV2(testdata(t, "v2")).At(group)
	g = open(t, g, err)
	for name, want := range map[string]string{"memory.max": "67108864", "memory.absent": ""} {
		if got, err := g.Unified(name); err != nil || got != want {
			t.Errorf("Unified(%s) = %q, %v, want %q", name, got, err, want)
		}
	}
	if _, err := g.Unified("../memory.max"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Unified of a path: error %v, want ErrInvalidArgument", err)
	}
	g, err = treeV1(testdata(t, "v1")).At(group)
	g = open(t, g, err)
	if got, err := g.Unified("memory.max"); err != nil || got != "" {
		t.Errorf("Unified on v1 = %q, %v, want \"\"", got, err)
	}
}

func TestPrime(t *testing.T) {
	root := t.TempDir()
	tree := withProc(t, treeV2(root), "0::"+group+"\n")
	must(t, os.Symlink("4711", filepath.Join(tree.proc, "self")))
	must(t, os.MkdirAll(root+group, 0o755))
	tree.Prime()
	if wrote, err := os.ReadFile(root + group + "/cgroup.procs"); string(wrote) != "0" {
		t.Errorf("Prime wrote %q to the process's own cgroup: %v, want 0", wrote, err)
	}
}
