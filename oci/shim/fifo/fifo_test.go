package fifo

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newFifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p")
	if err := Make(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func openReader(t *testing.T, path string) *Reader {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// TestSignalIsNoEnd: the Go runtime interrupts its own threads all the time, and a poll that a signal interrupts says
// nothing of the pipe.
func TestSignalIsNoEnd(t *testing.T) {
	r := openReader(t, newFifo(t))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid, done := unix.Gettid(), make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), tid, unix.SIGURG)
			}
		}
	})
	defer signals.Wait()
	defer close(done)
	buf := make([]byte, 10)
	for range 100 {
		if err := r.SetReadDeadline(time.Now().Add(50 * time.Microsecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read without a writer: %v", err)
		}
	}
}

func TestReaderWaitsForFirstWriter(t *testing.T) {
	path := newFifo(t)
	r := openReader(t, path)
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	if _, err := r.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read without a writer: %v", err)
	}
	if err := r.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = w.WriteString("hello")
		w.Close()
	}()
	if n, err := r.Read(buf); err != nil || string(buf[:n]) != "hello" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	if _, err := r.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("after the last writer: %v", err)
	}
}

func TestReaderSurvivesOneOfTwoWriters(t *testing.T) {
	path := newFifo(t)
	r := openReader(t, path)
	first, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	go func() { _, _ = second.WriteString("x") }()
	buf := make([]byte, 10)
	if n, err := r.Read(buf); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
	second.Close()
	if _, err := r.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
}

func TestCloseEndsRead(t *testing.T) {
	r := openReader(t, newFifo(t))
	done := make(chan error)
	go func() {
		_, err := r.Read(make([]byte, 1))
		done <- err
	}()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	if r.Rest(make([]byte, 1)) != 0 {
		t.Error("a closed pipe has a rest")
	}
}

func TestRest(t *testing.T) {
	path := newFifo(t)
	r := openReader(t, path)
	w, err := Write(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	buf := make([]byte, 10)
	if n := r.Rest(buf); n != 0 {
		t.Errorf("empty pipe: %d", n)
	}
	if _, err := w.WriteString("rest"); err != nil {
		t.Fatal(err)
	}
	if n := r.Rest(buf); string(buf[:n]) != "rest" {
		t.Errorf("%q", buf[:n])
	}
}

func TestRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(newFifo(t), link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir, filepath.Join(dir, "absent")} {
		if r, err := Open(path); err == nil {
			r.Close()
			t.Errorf("%s was opened for reading", path)
		}
		if w, err := Write(path); err == nil {
			w.Close()
			t.Errorf("%s was opened for writing", path)
		}
	}
	if err := Make(file); !errors.Is(err, os.ErrExist) {
		t.Errorf("in the place of a file: %v", err)
	}
}
