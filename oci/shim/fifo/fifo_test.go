package fifo

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/driver"
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

// TestSignalIsNoEnd: the Go runtime interrupts its own threads all the time, and a poll that a signal interrupts
// reports nothing about the pipe.
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
			t.Fatalf("read without a writer = %v, want %v", err, os.ErrDeadlineExceeded)
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
		t.Fatalf("read without a writer = %v, want %v", err, os.ErrDeadlineExceeded)
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
		t.Errorf("read = %q, %v, want %q", buf[:n], err, "hello")
	}
	if _, err := r.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("read after the last writer = %v, want %v", err, io.EOF)
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
		t.Errorf("read = %d, %v, want 1, nil", n, err)
	}
	second.Close()
	if _, err := r.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("read after both writers = %v, want %v", err, io.EOF)
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
		t.Errorf("read of a closed reader = %v, want an error other than %v", err, io.EOF)
	}
}

// TestCopyOutput: what is in the pipe at the deadline belongs to the output.
func TestCopyOutput(t *testing.T) {
	path := newFifo(t)
	r := openReader(t, path)
	w, err := Write(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // held open, as by a child that was left behind
	if _, err := w.WriteString("rest"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := driver.CopyOutput(&out, r); err != nil || out.String() != "rest" {
		t.Errorf("CopyOutput copied %q, %v, want %q, none", out.String(), err, "rest")
	}
}

// TestLateReader: data that was written before another process opens the pipe is there when it does, and then ends.
func TestLateReader(t *testing.T) {
	for _, data := range []string{"early", ""} {
		path := newFifo(t)
		both, err := Write(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := both.WriteString(data); err != nil {
			t.Fatal(err)
		}
		w, err := WriteOnly(both)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := both.WriteString("x"); !errors.Is(err, os.ErrClosed) {
			t.Errorf("write to the first file = %v, want %v", err, os.ErrClosed)
		}
		if HasReader(w) {
			t.Error("HasReader = true before there is one")
		}
		r, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if !HasReader(w) {
			t.Error("HasReader = false with a reader")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != data {
			t.Errorf("read %q, %v, want %q and the end", got, err, data)
		}
		r.Close()
	}
}
