package vmm

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestBareArguments: a bare machine has what the image wants, and no way to the host but its network.
func TestBareArguments(t *testing.T) {
	c := testConfig()
	c.Bare = &Bare{Arguments: []string{"A=b", "C=d"}}
	qemu := strings.Join(bareQEMUArguments(c, 3, []int{4, 5}), " ")
	for _, want := range []string{
		"-sandbox on,", "-nodefaults", "-no-reboot", " -S ", "-m 300M", "isa-debug-exit", "-append A=b C=d",
		"-initrd /initrd",
		"tap,id=n0,fd=4", "tap,id=n1,fd=5", "socket,id=control,fd=3",
	} {
		if !strings.Contains(qemu, want) {
			t.Errorf("arguments = %q, want %q in them", qemu, want)
		}
	}
	for _, unwanted := range []string{"vhost-user-fs", "virtserialport"} {
		if strings.Contains(qemu, unwanted) {
			t.Errorf("arguments = %q, want no %q", qemu, unwanted)
		}
	}
	c.Initrd = ""
	uml := strings.Join(bareUMLArguments(c), " ")
	for _, want := range []string{" noreboot ", " hostfs=/nowhere ", " ssl=null ", " A=b C=d"} {
		if !strings.Contains(uml, want) {
			t.Errorf("arguments = %q, want %q in them", uml, want)
		}
	}
	if strings.Contains(uml, "initrd=") {
		t.Errorf("arguments = %q, want no initial file system", uml)
	}
}

// TestBareExitCode: how a bare machine of QEMU has ended is what the guest has said, or what its monitor has seen.
func TestBareExitCode(t *testing.T) {
	for _, c := range []struct {
		name, command, events string
		want                  int
	}{
		{"switched off", "exit 0", `{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-shutdown"}}`, 0},
		{"restarted, as after a panic", "exit 0", `{"event":"SHUTDOWN","data":{"guest":true,"reason":"guest-reset"}}`, 1},
		{"isa-debug-exit with 0", "exit 1", "", 0},
		{"isa-debug-exit with 3", "exit 7", "", 3},
		{"killed", "kill -9 $$", "", 137},
		{"event of another form", "exit 0", `{"event":"SHUTDOWN","data":["guest-reset"]}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, far := bareMachine(t, "read x; "+c.command)
			greetShim(t, m, far)
			_, _ = io.WriteString(far, c.events+"\n")
			_ = far.Close()
			m.stdin.Close()
			<-m.Ended()
			if got := m.ExitCode(); got != c.want {
				t.Errorf("exit code = %d, want %d", got, c.want)
			}
		})
	}
}

// TestPowerButton: a machine is asked to end by QEMU's command. A QEMU that sends no end of a line is not read for
// ever.
func TestPowerButton(t *testing.T) {
	m, far := bareMachine(t, "read x")
	lines := greetShim(t, m, far)
	pressed := make(chan error, 1)
	go func() { pressed <- m.PowerDown() }()
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "system_powerdown") {
		t.Errorf("command = %q, %v, want system_powerdown", line, err)
	}
	if err := <-pressed; err != nil {
		t.Errorf("PowerDown = %v", err)
	}
	flood := make([]byte, controlLimit)
	go func() {
		for {
			if _, err := far.Write(flood); err != nil {
				return
			}
		}
	}()
	select {
	case <-m.button.ended:
	case <-time.After(10 * time.Second):
		t.Error("the events of QEMU are still read, want an end after a line that is too long")
	}
}

// TestNotReady: a QEMU that ends before the machine runs has not started it, and neither has one that is silent or
// refuses; the error says which.
func TestNotReady(t *testing.T) {
	for _, c := range []struct {
		name, want string
		limit      time.Duration
		answer     func(net.Conn)
	}{
		{"ended", "not started the machine", bootTimeout, func(far net.Conn) { _ = far.Close() }},
		{"silent", "timeout", 10 * time.Millisecond, func(net.Conn) {}},
		{"refuses", "no memory", bootTimeout, func(far net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, far) }()
			_, _ = io.WriteString(far, `{"QMP":{}}`+"\n"+`{"error":{"desc":"no memory"}}`+"\n")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, far := bareMachineWithin(t, "read x", c.limit)
			c.answer(far)
			if err := m.button.waitReady(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("waitReady = %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestEndedAtOnce: a machine that has ended before somebody looks has been started.
func TestEndedAtOnce(t *testing.T) {
	m, far := bareMachine(t, "read x")
	greetShim(t, m, far)
	_ = far.Close()
	<-m.button.ended
	for range 20 {
		if err := m.button.waitReady(); err != nil {
			t.Fatalf("waitReady = %v, want none", err)
		}
	}
}

// TestSlowStart: QEMU may take longer than a command until it answers, as on a busy node.
func TestSlowStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		b := newPowerButton(near)
		go b.watch(bootTimeout)
		go func() { _, _ = io.Copy(io.Discard, far) }()
		time.Sleep(bootTimeout - time.Second)
		_, _ = io.WriteString(far, `{"QMP":{}}`+"\n"+`{"return":{}}`+"\n"+`{"return":{}}`+"\n")
		if err := b.waitReady(); err != nil {
			t.Error(err)
		}
	})
}

// pretended is a machine whose monitor is a shell that waits for the end of stdin.
type pretended struct {
	*Machine
	stdin io.Closer
}

// bareMachine starts a bare machine and returns QEMU's end of its control connection.
func bareMachine(t *testing.T, script string) (pretended, net.Conn) {
	t.Helper()
	return bareMachineWithin(t, script, bootTimeout)
}

func bareMachineWithin(t *testing.T, script string, limit time.Duration) (pretended, net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	m := &Machine{config: Config{Bare: &Bare{Output: io.Discard}}, Console: NewTail(), button: newPowerButton(near)}
	m.monitor = exec.Command("sh", "-c", script)
	stdin, err := m.monitor.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.runBare(host{}); err != nil {
		t.Fatal(err)
	}
	go m.button.watch(limit)
	t.Cleanup(func() { _ = far.Close(); m.Stop(0) })
	return pretended{m, stdin}, far
}

// greetShim greets, and answers the commands that end the greeting and start the machine.
func greetShim(t *testing.T, m pretended, far net.Conn) *bufio.Reader {
	t.Helper()
	lines := bufio.NewReader(far)
	_, _ = io.WriteString(far, `{"QMP":{}}`+"\n")
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(far, `{"return":{}}`+"\n")
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"cont"`) {
		t.Fatalf("command = %q, %v, want cont", line, err)
	}
	_, _ = io.WriteString(far, `{"return":{}}`+"\n")
	if err := m.button.waitReady(); err != nil {
		t.Fatal(err)
	}
	return lines
}
