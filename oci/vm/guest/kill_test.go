package guest

import (
	"bufio"
	"fmt"
	"os/exec"
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
	killDescendants(cmd.Process.Pid)
	for _, pid := range pids {
		for end := time.Now().Add(5 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("process %d lives, want it killed", pid)
			}
		}
	}
	if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
		t.Errorf("the process itself: %v, want it to be there", err)
	}
}

// alive reports whether a process runs, stopped or not.
func alive(pid int) bool {
	for _, p := range []string{"Z", "X"} {
		out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
		if err != nil || len(out) > 0 && string(out[:1]) == p {
			return false
		}
	}
	return true
}
