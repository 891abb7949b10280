package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// started runs `sleep 1000` in dir until the test ends.
func started(t *testing.T, dir string, attr *syscall.SysProcAttr) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// TestLocals: only root's processes in podd's PID namespace are local. SharesMounts is false for those in another
// mount namespace.
func TestLocals(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users and in other namespaces")
	}
	dir := t.TempDir()
	own := started(t, dir, nil)
	mounts := started(t, dir, &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
	nobody := started(t, "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	inside := started(t, dir, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	all, err := Locals()
	if err != nil {
		t.Fatal(err)
	}
	byPid := map[int]Local{}
	for _, p := range all {
		byPid[p.Pid] = p
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if sleep, err = filepath.EvalSymlinks(sleep); err != nil {
		t.Fatal(err)
	}
	for pid, shares := range map[int]bool{own: true, mounts: false} {
		p := byPid[pid]
		if p.Program != sleep || p.Dir != dir || p.SharesMounts != shares || !p.Alive() {
			t.Errorf("process %d = %+v, want %s in %s, SharesMounts %v", pid, p, sleep, dir, shares)
		}
	}
	for name, pid := range map[string]int{
		"another user's": nobody, "one in another PID namespace": inside, "podd itself": os.Getpid(),
	} {
		if p, ok := byPid[pid]; ok {
			t.Errorf("%s is local: %+v, want it left out", name, p)
		}
	}
	if slices.ContainsFunc(all, func(p Local) bool { return p.Start == 0 || p.Program == "" }) {
		t.Errorf("Locals = %+v, want all with a start time and a program", all)
	}
	if _, ok := FindLocal(1 << 29); ok {
		t.Error("a pid that does not exist is local, want false")
	}
}
