package host

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
)

// TestSetTimezone: the file is written into the root filesystem, whatever the image has there.
func TestSetTimezone(t *testing.T) {
	want, err := ReadTimezone("Asia/Kathmandu")
	if err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	uid, gid := os.Getuid(), os.Getgid()
	if uid == 0 {
		uid, gid = 4000, 4001
	}
	for name, prepare := range map[string]func(root string) error{
		"empty image": func(string) error { return nil },
		"link to the image's database": func(root string) error {
			return errors.Join(os.MkdirAll(root+"/etc", 0o755), os.MkdirAll(root+"/usr/share/zoneinfo", 0o755),
				os.WriteFile(root+"/usr/share/zoneinfo/UTC", []byte("utc"), 0o644),
				os.Symlink("/usr/share/zoneinfo/UTC", root+"/etc/localtime"))
		},
		"link out of the image": func(root string) error {
			return errors.Join(os.MkdirAll(root+"/etc", 0o755), os.Symlink(outside+"/file", root+"/etc/localtime"))
		},
		"etc is a link out of the image": func(root string) error { return os.Symlink("../../../"+outside, root+"/etc") },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			err := prepare(root)
			if err == nil {
				err = SetTimezone(root, "Asia/Kathmandu", uid, gid)
			}
			left, _ := os.ReadDir(outside)
			etc := filepath.Join(root, "etc")
			if name == "etc is a link out of the image" { // the target is made in the image
				etc = filepath.Join(root, outside)
			}
			got, readErr := os.ReadFile(filepath.Join(etc, "localtime"))
			if err != nil || readErr != nil || string(got) != string(want) || len(left) > 0 {
				t.Errorf("SetTimezone() = %v, file = %q, %v, outside = %v; want the zone", err, got, readErr, left)
			}
			var st syscall.Stat_t
			err = syscall.Stat(filepath.Join(etc, "localtime"), &st)
			if err != nil || int(st.Uid) != uid || int(st.Gid) != gid {
				t.Errorf("owner of the file = %d:%d, %v, want %d:%d", st.Uid, st.Gid, err, uid, gid)
			}
			if utc, err := os.ReadFile(root + "/usr/share/zoneinfo/UTC"); err == nil && string(utc) != "utc" {
				t.Errorf("the image's UTC = %q, want it unchanged", utc)
			}
		})
	}
	for _, name := range []string{"../../../etc/passwd", "/etc/passwd", "zone.tab"} {
		if _, err := ReadTimezone(name); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("ReadTimezone(%q) = %v, want ErrInvalidArgument", name, err)
		}
	}
}
