package state

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
)

func TestSecureDir(t *testing.T) {
	cases := map[string]struct {
		prepare func(t *testing.T, path string)
		mode    fs.FileMode
		err     string
		warns   bool
	}{
		"absent":                  {prepare: func(*testing.T, string) {}, mode: 0o700},
		"absent, searchable":      {prepare: func(*testing.T, string) {}, mode: 0o711},
		"right mode":              {prepare: mkdir(0o700), mode: 0o700},
		"readable by others":      {prepare: mkdir(0o755), mode: 0o700, warns: true},
		"writable by others":      {prepare: mkdir(0o733), mode: 0o711, warns: true},
		"too restricted":          {prepare: mkdir(0o700), mode: 0o711},
		"other owner":             {prepare: owned(1234), mode: 0o700, err: "is owned by uid 1234"},
		"file":                    {prepare: file, mode: 0o700, err: "is not a directory"},
		"broken link":             {prepare: link("nowhere"), mode: 0o700, err: "no such file"},
		"link to own directory":   {prepare: link("real"), mode: 0o700},
		"link to other directory": {prepare: linkToOwned(1234), mode: 0o700, err: "is owned by uid 1234"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			mkdir(0o700)(t, filepath.Join(base, "real"))
			path := filepath.Join(base, "dir")
			c.prepare(t, path)
			log, hook := test.NewNullLogger()
			got, err := secureDir(path, c.mode, log)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("secureDir() = %v, want an error with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := filepath.EvalSymlinks(path)
			if err != nil || got != want {
				t.Errorf("secureDir() = %s, want %s (%v)", got, want, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.mode {
				t.Errorf("mode = %v, want %v (%v)", info.Mode().Perm(), c.mode, err)
			}
			if warned := len(hook.Entries) > 0; warned != c.warns {
				t.Errorf("warned = %v, want %v", warned, c.warns)
			}
		})
	}
}

func TestSecureDirCreatesParents(t *testing.T) {
	log, _ := test.NewNullLogger()
	path := filepath.Join(t.TempDir(), "a/b/c")
	if _, err := secureDir(path, 0o700, log); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("parent directory = %v, %v, want mode 0755", info, err)
	}
}

func mkdir(mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
	}
}

func owned(uid int) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		requireRoot(t)
		mkdir(0o700)(t, path)
		if err := os.Chown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
	}
}

func linkToOwned(uid int) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		owned(uid)(t, filepath.Join(filepath.Dir(path), "x"))
		link("x")(t, path)
	}
}

func file(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(to string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: creates a directory of another user")
	}
}
