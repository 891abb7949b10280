package namespaces

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/thread"
)

// TestMain lets the test binary be the holder program: started through a link of that name it only waits.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "holder" {
		time.Sleep(time.Hour) // not select {}: the runtime would call that a deadlock and exit
	}
	os.Exit(m.Run())
}

// needRoot skips the tests that make namespaces when the user may not.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("creating and mounting namespaces needs root")
	}
}

// newPinner returns a Pinner with a holder and checks, when the test is over, that nothing was left behind.
func newPinner(t testing.TB) *Pinner {
	t.Helper()
	needRoot(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holder := filepath.Join(t.TempDir(), "holder")
	if err := os.Symlink(self, holder); err != nil {
		t.Fatal(err)
	}
	before := leaks(t)
	t.Cleanup(func() { checkLeaks(t, before) })
	return New(holder)
}

// state is what this package could leave behind in the process and on the machine.
type state struct {
	mounts, threadNamespaces, children []string
}

func leaks(t testing.TB) state {
	t.Helper()
	return state{mounts: mounts(t, "self"), threadNamespaces: threadNamespaces(t), children: children(t)}
}

// checkLeaks waits a moment for the state to be the former one: the kernel ends threads after we have let go of them.
func checkLeaks(t testing.TB, before state) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		after := leaks(t)
		same := slices.Equal(before.mounts, after.mounts) && slices.Equal(before.threadNamespaces, after.threadNamespaces) &&
			slices.Equal(before.children, after.children)
		if same {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("left behind:\nbefore %+v\nafter  %+v", before, after)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// mounts lists the namespace mounts that process pid sees of this test, as "<root> <mountpoint>": other tests may
// run at the same time.
func mounts(t testing.TB, pid string) []string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	test, _, _ := strings.Cut(t.Name(), "/")
	mine := filepath.Join(os.TempDir(), test) // t.TempDir begins with the test's name
	var out []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); slices.Contains(f, "nsfs") && strings.HasPrefix(f[4], mine) {
			out = append(out, f[3]+" "+f[4])
		}
	}
	slices.Sort(out)
	return out
}

// threadNamespaces lists the different namespaces the threads of this process are in.
func threadNamespaces(t testing.TB) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/*")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil { // a thread may end meanwhile
			seen[target] = true
		}
	}
	var out []string
	for ns := range seen {
		out = append(out, ns)
	}
	slices.Sort(out)
	return out
}

func children(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil {
			out = append(out, strings.Fields(string(data))...)
		}
	}
	slices.Sort(out)
	return out
}

// allPins is a request for every namespace but the user's, pinned in dir.
func allPins(dir string) Request {
	pin := func(name string) string { return filepath.Join(dir, name) }
	return Request{Net: pin("net"), IPC: pin("ipc"), UTS: pin("uts"), Hostname: "pod-0"}
}

// inside runs f on a thread in the net, ipc and uts namespaces pinned for r.
func inside(t testing.TB, r Request, f func() error) {
	t.Helper()
	r.User = ""
	err := thread.Run(func() error {
		if err := enter(r.kinds()); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Error(err)
	}
}

// expectFile checks a file's content, from the thread that calls it.
func expectFile(path, want string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if got := strings.Join(strings.Fields(string(data)), " "); got != want {
		return fmt.Errorf("%s is %q, want %q", path, got, want)
	}
	return nil
}

// empty fails the test when dir has entries.
func empty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is still there", filepath.Join(dir, e.Name()))
	}
}
