package checkpoint

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAcquireAfterKill: a process that was killed may keep the lock for a moment.
func TestAcquireAfterKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := Acquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Acquire(path); err == nil || strings.Contains(err.Error(), "killed") {
		t.Fatalf("Acquire of a lock that is held = %v, want an error that names the holder", err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := l.writePid(ended.Process.Pid); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = l.Unlock() })
	again, err := Acquire(path)
	if err != nil {
		t.Fatalf("Acquire while a killed process ends = %v, want the lock", err)
	}
	if err := again.Unlock(); err != nil {
		t.Error(err)
	}
}
