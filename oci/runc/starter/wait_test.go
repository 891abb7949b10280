package starter

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/process"
)

func self(t *testing.T) process.Process {
	t.Helper()
	p, err := process.Identify(os.Getpid())
	must(t, "identify", err)
	return p
}

func wantWaits(t *testing.T, what string, p process.Process, fifo string, want bool, kind error) {
	t.Helper()
	if got, err := Waits(p, fifo); got != want || !errors.Is(err, kind) {
		t.Errorf("%s: Waits = %v, %v, want %v, %v", what, got, err, want, kind)
	}
}

func TestWaits(t *testing.T) {
	p, fifo := self(t), newFIFO(t)
	wantWaits(t, "not open", p, fifo, false, nil)
	for what, flags := range map[string]int{"runc": unix.O_PATH, "crun": unix.O_RDONLY | unix.O_NONBLOCK} {
		f, err := os.OpenFile(fifo, flags, 0)
		must(t, "open", err)
		wantWaits(t, what, p, fifo, true, nil)
		reused := process.Process{Pid: p.Pid, Start: p.Start + 1}
		wantWaits(t, what+", of a process that has ended", reused, fifo, false, nil)
		f.Close()
		wantWaits(t, what+", closed", p, fifo, false, nil)
	}
	regular := filepath.Join(filepath.Dir(fifo), "regular")
	must(t, "write", os.WriteFile(regular, nil, 0o600))
	wantWaits(t, "a regular file", p, regular, false, ErrNoFIFO)
	wantWaits(t, "no process", process.Process{Pid: 1 << 30}, fifo, false, nil)
}

// TestReplacedFIFO: only a FIFO that the runtime has made says anything.
func TestReplacedFIFO(t *testing.T) {
	p, fifo := self(t), newFIFO(t)
	f, err := os.OpenFile(fifo, unix.O_PATH, 0)
	must(t, "open", err)
	defer f.Close()
	must(t, "remove", os.Remove(fifo))
	wantWaits(t, "removed", p, fifo, false, ErrNoFIFO)
	must(t, "write", os.WriteFile(fifo, nil, 0o600))
	wantWaits(t, "a regular file", p, fifo, false, ErrNoFIFO)
	must(t, "link", errors.Join(os.Remove(fifo), os.Symlink(newFIFO(t), fifo)))
	wantWaits(t, "a link", p, fifo, false, ErrNoFIFO)
	must(t, "mkfifo", errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o622)))
	wantWaits(t, "another FIFO", p, fifo, false, ErrNoFIFO)
}

func TestForeignDirectory(t *testing.T) {
	p, fifo := self(t), newFIFO(t)
	dir := filepath.Dir(fifo)
	for _, mode := range []os.FileMode{0o731, 0o713} {
		must(t, "chmod", os.Chmod(dir, mode))
		wantWaits(t, mode.String(), p, fifo, false, ErrNoFIFO)
	}
	must(t, "chmod", os.Chmod(dir, 0o700))
	wantWaits(t, "private", p, fifo, false, nil)
	if os.Getuid() == 0 {
		must(t, "chown", os.Chown(fifo, 1234, 1234))
		wantWaits(t, "a FIFO of the root of a user namespace", p, fifo, false, nil)
		must(t, "chown", os.Chown(dir, 1234, 1234))
		wantWaits(t, "a directory of another user", p, fifo, false, ErrNoFIFO)
	}
}
