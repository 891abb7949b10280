package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	hexadecimal := regexp.MustCompile(`^[0-9a-f]{64}$`)
	seen := map[string]bool{}
	for range 100 {
		id := NewID()
		if !hexadecimal.MatchString(id) {
			t.Fatalf("id = %s, want 64 hexadecimal digits", id)
		}
		seen[id] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d different ids of 100, want all", len(seen))
	}
}

// TestPathsOfPodsDiffer: no two names of one pod, or of two, are on one path, and each is below its directory.
func TestPathsOfPodsDiffer(t *testing.T) {
	t.Parallel()
	l := Layout{Root: "/root", Run: "/run", NetnsDir: "/netns"}
	seen := map[string]bool{}
	for _, id := range []string{"a", "b"} {
		pins := l.Pins(id)
		for path, dir := range map[string]string{
			l.Images(id): l.Pods(), l.Netns(id): "/netns", l.ClaimLink(id): l.PodRun(id), pins.IPC: l.PodRun(id),
			pins.UTS: l.PodRun(id), pins.User: l.PodRun(id), l.PodEtc(id): l.PodEtcs(), l.Bundle(id): l.Bundles(),
		} {
			if seen[path] || !strings.HasPrefix(path, dir+"/") {
				t.Errorf("%s is used twice or not below %s", path, dir)
			}
			seen[path] = true
		}
	}
	for _, path := range []string{l.Quarantine(), l.SnapshotKey(), l.Pods()} {
		if !strings.HasPrefix(path, "/root/") {
			t.Errorf("%s is not below the root, want it to survive a reboot", path)
		}
	}
}

func TestNetns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ dir, want, claim string }{
		{"", "/run/netns/p", ""},
		{"/run/netns", "/run/netns/p", ""},
		{"/var/run/netns", "/var/run/netns/podd-p", "/run/pods/p/net"}, // other programs have theirs there
	} {
		l := Layout{Run: "/run", NetnsDir: c.dir}
		netns := l.Netns("p")
		if claim := l.NetnsClaim("p", netns); netns != c.want || claim != c.claim {
			t.Errorf("NetnsDir %q: Netns = %s, NetnsClaim = %q, want %s and %q", c.dir, netns, claim, c.want, c.claim)
		}
		if claim := l.NetnsClaim("p", ""); claim != "" {
			t.Errorf("NetnsDir %q: NetnsClaim of a pod on the node's network = %q, want none", c.dir, claim)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"b", "a"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if names, err := Names(dir); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("Names = %v, %v, want a and b", names, err)
	}
	if _, err := Names(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Names of no directory = %v, want %v", err, fs.ErrNotExist)
	}
}
