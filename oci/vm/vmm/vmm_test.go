package vmm

import (
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// host starts programs as they are.
type host struct{}

func (host) Start(cmd *exec.Cmd) error { return cmd.Start() }
func (host) Do(f func() error) error   { return f() }

// startMachine starts a monitor and a helper that do nothing.
func startMachine(t *testing.T) *Machine {
	t.Helper()
	line, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	m := &Machine{Line: line, Console: NewTail(), monitor: exec.Command("sleep", "1000")}
	if err := m.startHelper(host{}, exec.Command("sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	if err := m.run(host{}, m.Console); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Stop(0) })
	return m
}

// wantEnd ends the test unless the machine ends, for which there is a reason.
func wantEnd(t *testing.T, m *Machine, reason string) {
	t.Helper()
	select {
	case <-m.Ended():
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: the machine has not ended", reason)
	}
}

// TestMachineEndsAsAWhole: when the monitor or a helper is killed, the other one is, too.
func TestMachineEndsAsAWhole(t *testing.T) {
	for name, victim := range map[string]func(*Machine) *exec.Cmd{
		"monitor": func(m *Machine) *exec.Cmd { return m.monitor },
		"helper":  func(m *Machine) *exec.Cmd { return m.helpers[0].cmd },
	} {
		m := startMachine(t)
		if err := victim(m).Process.Kill(); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, m, name+" killed")
		for _, cmd := range []*exec.Cmd{m.monitor, m.helpers[0].cmd} {
			if cmd.ProcessState == nil {
				t.Errorf("%s killed: %v has not ended", name, cmd.Args)
			}
		}
	}
}

// TestMachineEndsWithoutItsChildren: a child that survives the monitor and holds its output does not keep the machine.
func TestMachineEndsWithoutItsChildren(t *testing.T) {
	m := &Machine{Console: NewTail(), monitor: exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")}
	if err := m.run(host{}, m.Console); err != nil {
		t.Fatal(err)
	}
	child := 0
	for deadline := time.Now().Add(10 * time.Second); child == 0 && time.Now().Before(deadline); {
		child, _ = strconv.Atoi(m.Console.Lines(1))
		time.Sleep(10 * time.Millisecond)
	}
	if child == 0 {
		t.Fatal("the monitor has not printed the PID of its child")
	}
	defer unix.Kill(child, unix.SIGKILL)
	go m.Stop(0)
	wantEnd(t, m, "its monitor was killed")
}

// TestMachineEndsWithoutItsReader: output that is not read does not hide the end of the machine.
func TestMachineEndsWithoutItsReader(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	m := &Machine{Console: NewTail(), monitor: exec.Command("head", "-c", "300000", "/dev/zero")}
	m.config.Bare = &Bare{Output: write}
	if err := m.runBare(host{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	go m.Stop(0)
	wantEnd(t, m, "its monitor was killed, its output is not read")
}

// TestMachineEndsWithItsKernel: a guest whose kernel panics ends, even if its monitor hangs.
func TestMachineEndsWithItsKernel(t *testing.T) {
	m := startMachine(t)
	if _, err := m.Console.Write([]byte(panicText)); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, m, "its kernel has panicked")
}

// TestDeviceGroups: QEMU, which is not root, gets the group of /dev/kvm if that may use it.
func TestDeviceGroups(t *testing.T) {
	const group = 106
	for mode, want := range map[uint32][]uint32{0o666: nil, 0o660: {group}} {
		if got, err := deviceGroups(mode, group); err != nil || !slices.Equal(got, want) {
			t.Errorf("deviceGroups of mode %#o = %v, %v, want %v", mode, got, err, want)
		}
	}
	for _, mode := range []uint32{0o600, 0o640} {
		if got, err := deviceGroups(mode, group); err == nil {
			t.Errorf("deviceGroups of mode %#o = %v, want an error", mode, got)
		}
	}
	if got, err := deviceGroups(0o660, 0); err == nil {
		t.Errorf("deviceGroups of a device of the group root = %v, want an error", got)
	}
}
