package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestRestrict(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	locked := t.TempDir()
	err := errors.Join(
		unix.Mount("podd-test", locked, "tmpfs", flags, ""),
		os.WriteFile(filepath.Join(locked, "file"), nil, 0o644),
		unix.Mount("", locked, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|flags, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(locked, unix.MNT_DETACH) })
	file, free := filepath.Join(locked, "file"), t.TempDir()
	all := []string{"ro", "nosuid", "nodev", "noexec"}
	var s specs.Spec
	var want [][]string
	for _, m := range []struct {
		kind, source  string
		options, want []string
	}{
		{"bind", locked, []string{"rbind"}, append([]string{"rbind"}, all...)},
		{"bind", file, []string{"rbind", "nosuid"}, append([]string{"rbind"}, all...)},
		{"none", locked, []string{"bind", "rw", "suid", "rdev", "exec"}, append([]string{"bind"}, all...)},
		{"bind", locked, []string{"rbind", "rro"}, append([]string{"rbind", "rro"}, all...)},
		{"bind", free, []string{"rbind", "rw", "nosuid"}, []string{"rbind", "rw", "nosuid"}},
		{"tmpfs", locked, []string{"rw"}, []string{"rw"}}, // its source is a name
		{"bind", filepath.Join(free, "none"), []string{"rbind"}, []string{"rbind"}},
	} {
		s.Mounts = append(s.Mounts, specs.Mount{Type: m.kind, Source: m.source, Options: m.options})
		want = append(want, m.want)
	}
	if err := NewResolver(1, false).Restrict(t.Context(), &s); err != nil {
		t.Fatal(err)
	}
	for i, m := range s.Mounts {
		if !slices.Equal(m.Options, want[i]) {
			t.Errorf("mount %d of %s: options = %v, want %v", i, m.Source, m.Options, want[i])
		}
	}
}
