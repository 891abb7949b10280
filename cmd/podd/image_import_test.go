package main

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/image"
)

func TestImageImportRefuses(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "podd.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, test := range map[string]struct {
		args []string
		code int
		text string
	}{
		"no --from":     {nil, exitConfig, "containerd"},
		"other runtime": {[]string{"--from", "dockerd"}, exitConfig, "dockerd"},
		"no store of CRI-O": {
			[]string{"--from", "crio", "--crio-root", dir + "/absent"}, exitFailure, "/absent/overlay-images/images.json",
		},
		"podd runs":      {[]string{"--from", "containerd", "--listen", socket}, exitFailure, "stop it first"},
		"wrong argument": {[]string{"--from", "containerd", "busybox"}, exitConfig, "busybox"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			args := append([]string{"image", "import", "--root", dir + "/root", "--run", dir + "/run"}, test.args...)
			code := execute(args, &out, &errs)
			if code != test.code || !strings.Contains(errs.String(), test.text) {
				t.Errorf("exit status = %d, stderr %q, want %d and %q", code, errs.String(), test.code, test.text)
			}
		})
	}
}

// TestProgressLine: a terminal's line is rewritten, and what is no terminal gets only the result. A name cannot move
// the cursor.
func TestProgressLine(t *testing.T) {
	for terminal, want := range map[bool]string{
		true:  "\r\x1b[Ka?[1A  512 B of 1.0 KiB\r\x1b[Ka?[1A  imported\n",
		false: "a?[1A  imported\n",
	} {
		var out strings.Builder
		l := progressLine{out: &out, terminal: terminal, title: "a\x1b[1A"}
		l.show(image.PullProgress{BytesDone: 512, BytesTotal: 1024})
		l.end("imported")
		if out.String() != want {
			t.Errorf("on a terminal (%t) it wrote %q, want %q", terminal, out.String(), want)
		}
	}
}
