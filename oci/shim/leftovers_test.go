package shim

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/test/fuse"
)

// TestDeadFileSystem: the processes of a bundle are found while others are in directories whose server does not answer.
// Those of other users are not of the bundle, in whatever directory they are.
func TestDeadFileSystem(t *testing.T) {
	b := bundle{driver.Bundle(t.TempDir())}
	if err := os.Chmod(filepath.Dir(b.Dir()), 0o755); err != nil {
		t.Fatal(err)
	}
	volume := filepath.Join(t.TempDir(), "volume")
	server := fuse.Mount(t, volume)
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	sleepIn(t, volume, nil)
	sleepIn(t, b.Dir(), nobody)
	own := sleepIn(t, b.Dir(), nil)
	server.Die()
	found := make(chan []process.Process, 1)
	go func() { found <- bundleProcesses(b) }()
	select {
	case got := <-found:
		if len(got) != 1 || got[0].Pid != own {
			t.Errorf("bundleProcesses = %v, want process %d", got, own)
		}
	case <-time.After(5 * time.Second):
		t.Error("bundleProcesses has not returned after 5s")
	}
}

// sleepIn runs a process with that working directory until the test ends. The process changes to it by itself: between
// fork and exec it would wait for the FUSE server of this process, whose garbage collector may wait for the fork.
func sleepIn(t *testing.T, dir string, attr *syscall.SysProcAttr) int {
	t.Helper()
	cmd := exec.Command("sh", "-c", `cd "$1" && echo there && exec sleep 1000`, "sh", dir)
	cmd.Dir, cmd.SysProcAttr = "/", attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the process in %s says %q, %v", dir, line, err)
	}
	return cmd.Process.Pid
}

func TestParseListener(t *testing.T) {
	for line, want := range map[string][2]string{
		"ffff888103a5e800: 00000002 00000000 00010000 0001 01 71234 /run/containerd/s/c909\n": {
			"71234", "/run/containerd/s/c909",
		},
		"0000000000000000: 00000003 00000000 00000000 0001 03 71235 /run/containerd/s/c909\n": {}, // a connection to it
		"0000000000000000: 00000002 00000000 00010000 0001 01 71236 @abstract\n":              {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71237 relative\n":               {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71238 /a/../b\n":                {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71239\n":                        {},
		"Num       RefCount Protocol Flags    Type St Inode Path\n":                           {},
		"": {},
	} {
		if inode, path := parseListener(line); inode != want[0] || path != want[1] {
			t.Errorf("parseListener(%q) = %q, %q, want %q", line, inode, path, want)
		}
	}
}
