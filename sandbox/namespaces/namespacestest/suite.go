// Package namespacestest has Suite, which checks how namespaces are pinned, and Fake, which passes it without
// privileges. The tests of sandbox and server/adapt_test.go run the engine on Fake. Only tests may import it.
package namespacestest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/sandbox/namespaces"
)

// Namespaces is what Suite checks. *namespaces.Pinner and *Fake implement it.
type Namespaces interface {
	Pin(ctx context.Context, r namespaces.Request) error
	Unpin(ctx context.Context, paths ...string) error
	Lost(r namespaces.Request) string
	Pinned(dir string) ([]string, error)
	Sysctl(ctx context.Context, netns string, sysctls map[string]string) error
}

var (
	_ Namespaces = (*namespaces.Pinner)(nil)
	_ Namespaces = (*Fake)(nil)
)

// Suite runs the tests of the behaviour that the engine relies on. open is called once per test.
func Suite(t *testing.T, open func(t *testing.T) Namespaces) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, n Namespaces, dir string)
	}{
		{"PinAnySubset", testPinAnySubset},
		{"PinIsAllOrNothing", testPinIsAllOrNothing},
		{"PinOverLeftovers", testPinOverLeftovers},
		{"PinCancelled", testPinCancelled},
		{"BadRequests", testBadRequests},
		{"UnpinIsIdempotent", testUnpin},
		{"UnpinRefusesOtherFiles", testUnpinOther},
		{"Lost", testLost},
		{"Sysctl", testSysctl},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t), filepath.Join(t.TempDir(), "pins")) })
	}
}

// request asks for all namespaces but the user's, pinned in dir.
func request(dir string) namespaces.Request {
	return namespaces.Request{
		Net: filepath.Join(dir, "net"), IPC: filepath.Join(dir, "ipc"), UTS: filepath.Join(dir, "uts"), Hostname: "pod-0",
	}
}

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s = %v, want nil", what, err)
	}
}

// wantPins checks the pin files in dir.
func wantPins(t *testing.T, n Namespaces, dir string, want ...string) {
	t.Helper()
	for i := range want {
		want[i] = filepath.Join(dir, want[i])
	}
	got, err := n.Pinned(dir)
	must(t, "Pinned", err)
	if !slices.Equal(got, want) {
		t.Errorf("Pinned = %q, want %q", got, want)
	}
}

func testPinAnySubset(t *testing.T, n Namespaces, dir string) {
	wantPins(t, n, dir) // an absent directory is not an error
	names := []string{"ipc", "net", "uts"}
	for bits := range 1 << len(names) {
		var r namespaces.Request
		var want, paths []string
		for i, path := range []*string{&r.IPC, &r.Net, &r.UTS} {
			if bits&(1<<i) != 0 {
				*path = filepath.Join(dir, names[i])
				want, paths = append(want, names[i]), append(paths, *path)
			}
		}
		must(t, fmt.Sprintf("Pin(%+v)", r), n.Pin(t.Context(), r))
		wantPins(t, n, dir, want...)
		must(t, "Unpin", n.Unpin(t.Context(), paths...))
		wantPins(t, n, dir)
	}
}

func testPinIsAllOrNothing(t *testing.T, n Namespaces, dir string) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, "write file", os.WriteFile(file, []byte("x"), 0o600))
	r := request(dir)
	r.UTS = filepath.Join(file, "uts")
	if err := n.Pin(t.Context(), r); err == nil {
		t.Error("Pin below a file = nil, want an error")
	}
	wantPins(t, n, dir)
}

func testPinOverLeftovers(t *testing.T, n Namespaces, dir string) {
	r := request(dir)
	must(t, "make directory", os.MkdirAll(dir, 0o700))
	must(t, "leave a pin file", os.WriteFile(r.Net, nil, 0o600))
	for range 2 { // the second time over pinned namespaces
		must(t, "Pin", n.Pin(t.Context(), r))
		wantPins(t, n, dir, "ipc", "net", "uts")
	}
	must(t, "Unpin", n.Unpin(t.Context(), r.Net, r.IPC, r.UTS))
	wantPins(t, n, dir)
}

func testPinCancelled(t *testing.T, n Namespaces, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := request(dir)
	if err := n.Pin(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Pin with a cancelled context = %v, want %v", err, context.Canceled)
	}
	wantPins(t, n, dir)
	must(t, "Pin", n.Pin(t.Context(), r))
	if err := n.Unpin(ctx, r.Net, r.IPC, r.UTS); !errors.Is(err, context.Canceled) {
		t.Errorf("Unpin with a cancelled context = %v, want %v", err, context.Canceled)
	}
	must(t, "Unpin", n.Unpin(t.Context(), r.Net, r.IPC, r.UTS))
	wantPins(t, n, dir)
}

func testBadRequests(t *testing.T, n Namespaces, dir string) {
	for name, spoil := range map[string]func(r *namespaces.Request){
		"relative path":       func(r *namespaces.Request) { r.Net = "net" },
		"one file for two":    func(r *namespaces.Request) { r.IPC = r.Net },
		"user without maps":   func(r *namespaces.Request) { r.User = filepath.Join(dir, "user") },
		"hostname":            func(r *namespaces.Request) { r.Hostname = "a\nb" },
		"hostname of no pod":  func(r *namespaces.Request) { r.UTS = "" },
		"sysctl of the node":  func(r *namespaces.Request) { r.Sysctls = map[string]string{"kernel.core_pattern": "|/x"} },
		"sysctl of no pod":    func(r *namespaces.Request) { r.Net, r.Sysctls = "", map[string]string{"net.a.b": "1"} },
		"value with newlines": func(r *namespaces.Request) { r.Sysctls = map[string]string{"net.ipv4.ip_forward": "1\n0"} },
	} {
		r := request(dir)
		spoil(&r)
		if err := n.Pin(t.Context(), r); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Pin = %v, want an invalid argument", name, err)
		}
	}
	wantPins(t, n, dir)
}

func testUnpin(t *testing.T, n Namespaces, dir string) {
	r := request(dir)
	must(t, "Unpin of what never was", n.Unpin(t.Context(), r.Net, r.IPC))
	must(t, "Pin", n.Pin(t.Context(), r))
	must(t, "Unpin of one", n.Unpin(t.Context(), r.IPC))
	wantPins(t, n, dir, "net", "uts")
	for range 2 {
		must(t, "Unpin", n.Unpin(t.Context(), r.Net, r.IPC, r.UTS))
		wantPins(t, n, dir)
	}
	must(t, "Unpin of nothing", n.Unpin(t.Context()))
}

func testUnpinOther(t *testing.T, n Namespaces, dir string) {
	must(t, "make directory", os.MkdirAll(dir, 0o700))
	path := filepath.Join(dir, "precious")
	must(t, "write file", os.WriteFile(path, []byte("x"), 0o600))
	pin := request(dir).Net
	must(t, "Pin", n.Pin(t.Context(), namespaces.Request{Net: pin}))
	if err := n.Unpin(t.Context(), path, pin); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Unpin of a file with content = %v, want a failed precondition", err)
	}
	wantPins(t, n, dir, "precious") // the others go all the same
}

// testLost takes pins away as other programs do: some leave the file.
func testLost(t *testing.T, n Namespaces, dir string) {
	r := request(dir)
	unmount := func(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
	if f, ok := n.(*Fake); ok {
		unmount = f.Unmount
	}
	for kind, path := range map[string]string{"net": r.Net, "ipc": r.IPC, "uts": r.UTS} {
		for _, remove := range []func(string) error{unmount, func(path string) error {
			return errors.Join(unmount(path), os.Remove(path))
		}} {
			must(t, "Pin", n.Pin(t.Context(), r))
			if got := n.Lost(r); got != "" {
				t.Errorf("Lost of pinned namespaces = %q, want none", got)
			}
			must(t, "take the pin away", remove(path))
			if got := n.Lost(r); got != kind {
				t.Errorf("Lost = %q, want %q", got, kind)
			}
		}
	}
	must(t, "Unpin", n.Unpin(t.Context(), r.Net, r.IPC, r.UTS))
	if got := n.Lost(namespaces.Request{}); got != "" {
		t.Errorf("Lost of none = %q, want none", got)
	}
}

func testSysctl(t *testing.T, n Namespaces, dir string) {
	r := request(dir)
	must(t, "Sysctl of none", n.Sysctl(t.Context(), r.Net, nil))
	ofInterface := map[string]string{"net.ipv4.conf.eth0.forwarding": "1"}
	if err := n.Sysctl(t.Context(), r.Net, ofInterface); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Sysctl without a namespace = %v, want %v", err, fs.ErrNotExist)
	}
	must(t, "Pin", n.Pin(t.Context(), r))
	must(t, "Sysctl of no interface", n.Sysctl(t.Context(), r.Net, map[string]string{"net.ipv4.ip_forward": "1"}))
	must(t, "Unpin", n.Unpin(t.Context(), r.Net, r.IPC, r.UTS))
}
