package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKillDescendants: children and grandchildren end, the process itself is left to the caller.
func TestKillDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sh -c 'sleep 1000 & echo $!; sleep 1000' & echo $!; sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait() //nolint:errcheck // it is killed
	defer cmd.Process.Kill()
	var pids [2]int
	in := bufio.NewReader(out)
	for i := range pids {
		if _, err := fmt.Fscan(in, &pids[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range pids {
		if !alive(t, pid) {
			t.Fatalf("process %d does not live before it is killed", pid)
		}
	}
	killDescendants(cmd.Process.Pid)
	for _, pid := range pids {
		for end := time.Now().Add(5 * time.Second); alive(t, pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d lives, want it killed", pid)
			}
		}
	}
	if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
		t.Errorf("the process itself: %v, want it to be there", err)
	}
}

// alive reports whether a process runs, stopped or not. One that has ended is a zombie until its parent waits for it.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return false
	}
	_, rest, ok := strings.Cut(string(stat), ") ") // sh and sleep have no ) in their names
	if err != nil || !ok {
		t.Fatalf("/proc/%d/stat = %q, %v", pid, stat, err)
	}
	return rest[0] != 'Z' && rest[0] != 'X'
}
