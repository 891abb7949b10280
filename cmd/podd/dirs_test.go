package main

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
		"is made":              {prepare: func(*testing.T, string) {}, mode: 0o700},
		"is searchable":        {prepare: func(*testing.T, string) {}, mode: 0o711},
		"is right":             {prepare: mkdir(0o700), mode: 0o700},
		"is open":              {prepare: mkdir(0o755), mode: 0o700, warns: true},
		"is writable":          {prepare: mkdir(0o733), mode: 0o711, warns: true},
		"is too closed":        {prepare: mkdir(0o700), mode: 0o711},
		"belongs to another":   {prepare: owned(1234), mode: 0o700, err: "is owned by uid 1234"},
		"is a file":            {prepare: file, mode: 0o700, err: "is not a directory"},
		"is a link to nowhere": {prepare: link("nowhere"), mode: 0o700, err: "no such file"},
		"is a link to our own": {prepare: link("real"), mode: 0o700},
		"is a link to a strange": {prepare: func(t *testing.T, p string) { owned(1234)(t, filepath.Join(filepath.Dir(p), "x")); link("x")(t, p) },
			mode: 0o700, err: "is owned by uid 1234"},
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
					t.Errorf("got %v, want %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := filepath.EvalSymlinks(path)
			if err != nil || got != want {
				t.Errorf("got %s, want %s, %v", got, want, err)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != c.mode {
				t.Errorf("mode %v, want %v, %v", info.Mode().Perm(), c.mode, err)
			}
			if warned := len(hook.Entries) > 0; warned != c.warns {
				t.Errorf("warned: %v, want %v", warned, c.warns)
			}
		})
	}
}

func TestSecureDirMakesParents(t *testing.T) {
	log, _ := test.NewNullLogger()
	path := filepath.Join(t.TempDir(), "a/b/c")
	if _, err := secureDir(path, 0o700, log); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("parent: %v, %v", info, err)
	}
}

func mkdir(mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
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
		t.Skip("needs root: makes a directory of another user, or runs the daemon")
	}
}
