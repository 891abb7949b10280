package conmon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openNext does to the names in the bundle what conmon does to reopen its log.
func openNext(t *testing.T, bundle string) *os.File {
	t.Helper()
	next := filepath.Join(bundle, nextName)
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatalf("conmon could not open its log and would exit: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	if err := os.Rename(next, filepath.Join(bundle, logName)); err != nil {
		t.Fatalf("conmon could not rename its log and would exit: %v", err)
	}
	return f
}

func checkSame(t *testing.T, what string, f *os.File, path string) {
	t.Helper()
	have, errHave := f.Stat()
	want, errWant := os.Stat(path)
	if errHave != nil || errWant != nil || !os.SameFile(have, want) {
		t.Errorf("%s: the opened file is not %s: %v, %v", what, path, errHave, errWant)
	}
}

// TestLogNames follows the names that conmon opens, at every moment at which it may open them, also more than once.
func TestLogNames(t *testing.T) {
	bundle, logs := t.TempDir(), t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(bundle, "ctl"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl, err := os.OpenFile(filepath.Join(bundle, "ctl"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ctl.Close()
	newLog := func(name string) (*os.File, string) {
		path := filepath.Join(logs, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f, path
	}
	first, path := newLog("0.log")
	if err := linkFirst(bundle, first); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(bundle, logName), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	checkSame(t, "at creation", f, path)
	f.Close()
	for i := range 3 {
		next, path := newLog(fmt.Sprintf("%d.log", i+1))
		err := Reopen(bundle, next)
		if errors.Is(err, unix.EPERM) {
			t.Skipf("no right to mount: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range i + 1 {
			checkSame(t, "after Reopen", openNext(t, bundle), path)
		}
		if i == 1 {
			continue // interrupted
		}
		if err := FinishReopen(bundle); err != nil {
			t.Fatal(err)
		}
		checkSame(t, "after FinishReopen", openNext(t, bundle), os.DevNull)
		if left, _ := filepath.Glob(filepath.Join(bundle, "log*")); len(left) != 2 {
			t.Errorf("names after FinishReopen = %q, want the log and the next log", left)
		}
	}
	if err := ReleaseLog(bundle); err != nil {
		t.Errorf("ReleaseLog without a mount: %v, want nil", err)
	}
}

// TestReopenInterruptedAtEveryStep ends a Reopen after each of its steps: conmon finds a file whenever it looks, and
// the next Reopen works.
func TestReopenInterruptedAtEveryStep(t *testing.T) {
	logs := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(logs, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	steps := []func(bundle string) error{
		func(bundle string) error { return os.WriteFile(filepath.Join(bundle, mountName), nil, 0o600) },
		func(bundle string) error { return bindFile(open("new"), filepath.Join(bundle, mountName)) },
		func(bundle string) error {
			return os.Symlink(filepath.Join(bundle, mountName), filepath.Join(bundle, linkName))
		},
		func(bundle string) error { return os.Remove(filepath.Join(bundle, logName)) },
		func(bundle string) error {
			return os.Link(filepath.Join(bundle, linkName), filepath.Join(bundle, logName))
		},
		func(bundle string) error {
			return os.Rename(filepath.Join(bundle, linkName), filepath.Join(bundle, nextName))
		},
	}
	for done := range steps {
		bundle := t.TempDir()
		if err := linkFirst(bundle, open("old")); err != nil {
			t.Fatal(err)
		}
		for _, step := range steps[:done+1] {
			if err := step(bundle); errors.Is(err, unix.EPERM) {
				t.Skipf("no right to mount: %v", err)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(filepath.Join(bundle, nextName)); err != nil {
			t.Errorf("after %d steps conmon finds no log: %v", done+1, err)
		}
		if err := errors.Join(syscall.Mkfifo(filepath.Join(bundle, "ctl"), 0o600)); err != nil {
			t.Fatal(err)
		}
		ctl, err := os.OpenFile(filepath.Join(bundle, "ctl"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		next := open("next")
		if err := Reopen(bundle, next); err != nil {
			t.Errorf("Reopen after %d steps of another: %v, want nil", done+1, err)
		}
		checkSame(t, fmt.Sprintf("after %d steps of another Reopen", done+1), openNext(t, bundle), next.Name())
		if err := errors.Join(FinishReopen(bundle), ctl.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestReopenNobodyListens: nothing is mounted for a monitor that is gone.
func TestReopenNobodyListens(t *testing.T) {
	bundle := t.TempDir()
	f, err := os.Create(filepath.Join(t.TempDir(), "0.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Reopen(bundle, f); err == nil {
		t.Error("Reopen without a monitor succeeded, want an error")
	}
	if _, err := os.Lstat(filepath.Join(bundle, mountName)); err == nil {
		t.Error("Reopen without a monitor left a mount, want none")
	}
	if err := errors.Join(ReleaseLog(bundle), ReleaseLog(filepath.Join(bundle, "absent"))); err != nil {
		t.Errorf("ReleaseLog: %v, want nil", err)
	}
}
