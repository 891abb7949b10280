package state

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
)

func listen(t *testing.T, path string) (*Socket, error) {
	t.Helper()
	log, _ := test.NewNullLogger()
	return Listen(path, SocketMode, log)
}

func TestSocketModeAndRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run/podd.sock")
	s, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|SocketMode {
		t.Errorf("mode = %v, want a socket with %o (%v)", info.Mode(), SocketMode, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode of the directory = %v, want 0700 (%v)", info.Mode(), err)
	}
	connect(t, s, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("files left = %v, %v, want none", left, err)
	}
}

// connect checks that a client of path is accepted by s.
func connect(t *testing.T, s *Socket, path string) {
	t.Helper()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestSocketReplacesAStaleOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podd.sock")
	for _, leftover := range []string{path, path + ".new"} { // of a daemon killed while serving, and during its start
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: leftover, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	s, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, s, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSocketRefusals(t *testing.T) {
	dir := t.TempDir()
	busy, plain := filepath.Join(dir, "busy"), filepath.Join(dir, "plain")
	l, err := net.Listen("unix", busy)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file(t, plain)
	link("busy")(t, filepath.Join(dir, "link"))
	for path, want := range map[string]string{
		busy:                       "another process listens on " + busy,
		plain:                      "is not a socket",
		filepath.Join(dir, "link"): "is not a socket",
		dir:                        "is not a socket",
	} {
		if _, err := listen(t, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Listen(%s) = %v, want an error with %q", path, err, want)
		}
	}
	if _, err := os.Stat(plain); err != nil {
		t.Errorf("Stat(plain) = %v, want the file", err)
	}
}

func TestSocketOfTheLongestPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("s", 107-len(dir)-1))
	s, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	connect(t, s, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestSocketCloseLeavesASuccessorAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "podd.sock")
	s, err := listen(t, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	file(t, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("Stat(path) = %v, want the successor", err)
	}
}
