package state

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestRemoveSocket: the socket that a killed podd left goes, with its directory. That of another process stays.
func TestRemoveSocket(t *testing.T) {
	for _, tt := range []struct {
		name     string
		listens  bool
		other    string
		want     []string
		wantGone bool
	}{
		{name: "of a killed podd", wantGone: true},
		{name: "of a running runtime", listens: true, want: []string{"nri.sock"}},
		{name: "next to another file", other: "other", want: []string{"other"}},
		{name: "not published yet", other: "nri.sock.new", wantGone: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "nri")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, "nri.sock")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			defer l.Close()
			if !tt.listens {
				l.Close()
			}
			if tt.other != "" {
				if err := os.WriteFile(filepath.Join(dir, tt.other), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := RemoveSocket(path); err != nil {
				t.Errorf("RemoveSocket() = %v", err)
			}
			entries, err := os.ReadDir(dir)
			if gone := errors.Is(err, fs.ErrNotExist); gone != tt.wantGone {
				t.Fatalf("ReadDir() = %v, %v, want the directory gone: %v", entries, err, tt.wantGone)
			}
			if len(entries) != len(tt.want) || len(entries) == 1 && entries[0].Name() != tt.want[0] {
				t.Errorf("left are %v, want %v", entries, tt.want)
			}
		})
	}
}
