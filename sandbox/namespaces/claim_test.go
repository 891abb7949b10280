package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/thread"
)

// sharedDir returns a directory for pins that others use, and unmounts what is mounted on it when the test is over.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run", "netns")
	t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
	return dir
}

// claimed returns a request for a network namespace in dir.
func claimed(dir, own, name string) Request {
	return Request{Net: filepath.Join(dir, name), Claim: filepath.Join(own, name, "net")}
}

// TestClaimedPinIsSeenByOthers: the directory is as `ip netns add` makes it. A mount namespace that has a copy of it,
// made before the first pin, gets the pin by propagation and loses it at Unpin.
func TestClaimedPinIsSeenByOthers(t *testing.T) {
	p := newPinner(t)
	dir, own := sharedDir(t), t.TempDir()
	first, second := claimed(dir, own, "podd-1"), claimed(dir, own, "podd-2")
	pin := func(r Request) {
		t.Helper()
		if err := p.Pin(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	pin(first)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of the directory = %v, %v, want 0755", info.Mode(), err)
	}
	if m := mountsOn(t, dir); len(m) != 1 || !strings.Contains(m[0].Optional, "shared:") {
		t.Errorf("mounts on the directory = %v, want one, shared", m)
	}
	err := thread.Run(func() error { // a container with the directory mounted HostToContainer
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
			return err
		}
		pin(second)
		var st unix.Statfs_t
		if err := unix.Statfs(second.Net, &st); err != nil || st.Type != unix.NSFS_MAGIC {
			return fmt.Errorf("the container sees a file of type %#x, %w; want a namespace", st.Type, err)
		}
		return p.Unpin(t.Context(), second.Net)
	})
	if err != nil {
		t.Error(err)
	}
	if got := Claimed(first.Claim); got != first.Net {
		t.Errorf("Claimed = %q, want %q", got, first.Net)
	}
	if got := Claimed(second.Claim); got != "" {
		t.Errorf("Claimed after Unpin = %q, want none", got)
	}
	if err := p.Unpin(t.Context(), first.Net); err != nil {
		t.Error(err)
	}
}

// TestClaimedPinsAtOnce: many first pins at once bind the directory once, not once each, on top of each other.
func TestClaimedPinsAtOnce(t *testing.T) {
	p := newPinner(t)
	dir, own := sharedDir(t), t.TempDir()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			r := claimed(dir, own, fmt.Sprint("podd-", i))
			if err := errors.Join(p.Pin(t.Context(), r), p.Unpin(t.Context(), r.Net)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if m := mountsOn(t, dir); len(m) != 1 {
		t.Errorf("%d mounts on the directory, want 1", len(m))
	}
	empty(t, dir)
}

func TestClaimIsChecked(t *testing.T) {
	for name, r := range map[string]Request{
		"no network namespace": {IPC: "/run/x/ipc", Claim: "/run/x/net"},
		"relative":             {Net: "/run/netns/x", Claim: "net"},
		"not clean":            {Net: "/run/netns/x", Claim: "/run/../net"},
	} {
		if err := r.Validate(); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%s: Validate = %v, want invalid argument", name, err)
		}
	}
}

func mountsOn(t *testing.T, dir string) []*mountinfo.Info {
	t.Helper()
	list, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != dir, false })
	if err != nil {
		t.Fatal(err)
	}
	return list
}
