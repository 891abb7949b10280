package vmm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bare configures a machine without an agent: a kernel that is all of its pod.
type Bare struct {
	// Arguments are those of the kernel; with User-Mode Linux, package kernel has checked that they are not its own.
	Arguments []string
	// Output gets the machine's output, in addition to Machine.Console.
	Output io.Writer
}

// startBareUML starts User-Mode Linux without a line and without files of the host.
func startBareUML(s Starter, c Config) (*Machine, error) {
	m := &Machine{config: c, Console: NewTail()}
	m.monitor = exec.Command(c.Kernel, bareUMLArguments(c)...)
	m.monitor.Env = []string{"PATH=/usr/bin", "HOME=" + c.Temp, "TMPDIR=" + c.MemoryDir}
	m.monitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.credential()}
	if err := m.runBare(s); err != nil {
		return nil, err
	}
	return m, nil
}

// bareUMLArguments has "quiet" for a log that is the program's, and "noreboot" because podd starts a container
// again, and counts that.
func bareUMLArguments(c Config) []string {
	args := []string{
		fmt.Sprintf("mem=%dM", c.Memory), "con=null", "con0=null,fd:1", "ssl=null", "panic=-1", "noreboot", "quiet",
		noHostfs,
	}
	if c.Initrd != "" {
		args = append(args, "initrd="+c.Initrd)
	}
	for i, n := range c.NICs {
		args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s,mac=%s", i, n.Tap, n.MAC))
	}
	return append(args, c.Bare.Arguments...)
}

// startBareQEMU starts QEMU without virtiofsd and without a port to an agent.
func startBareQEMU(s Starter, c Config) (*Machine, error) {
	m := &Machine{config: c, Console: NewTail()}
	m.Console.said = true // a kernel that is not known may print any text
	var files passed
	defer files.close()
	var taps []int
	for _, n := range c.NICs {
		taps = append(taps, files.add(n.File))
	}
	user, err := qemuUser(s, c)
	if err != nil {
		return nil, err
	}
	conn, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	control := files.add(theirs)
	m.button = newPowerButton(conn)
	m.monitor = exec.Command(qemuProgram, bareQEMUArguments(c, control, taps)...)
	m.monitor.Env = []string{"PATH=/usr/bin"}
	m.monitor.ExtraFiles = files.files
	m.monitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
	if err := m.runBare(s); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go m.button.watch(bootTimeout)
	// QEMU has them, so that its connection ends with it.
	files.close()
	if err := m.button.waitReady(); err != nil { // as for a kernel that QEMU cannot load
		m.Stop(0)
		return nil, fmt.Errorf("%w: %s", err, m.Console.Lines(bareErrorLines))
	}
	return m, nil
}

// bootTimeout is how long QEMU may take, from its start, until the machine runs: on a busy node without KVM, and less
// than the minute that podd waits for a start, so that the caller learns why.
const bootTimeout = 45 * time.Second

// bareErrorLines are the lines of QEMU in the error of a machine that does not start.
const bareErrorLines = 3

// bareQEMUArguments are those of a PC with a serial port, its network, and the device by which unikernels say how they
// end (isa-debug-exit). The kernel's command line has only the parameters that the image or the pod wants. The machine
// stands still (-S) until powerButton.watch has it run: how it ends is then known, however early that is.
func bareQEMUArguments(c Config, control int, taps []int) []string {
	args := append(machineArguments(c, pc, control), "-S",
		"-m", fmt.Sprintf("%dM", c.Memory), "-smp", strconv.Itoa(c.CPUs),
		"-device", "isa-debug-exit,iobase=0x501,iosize=2",
		"-kernel", c.Kernel, "-append", strings.Join(c.Bare.Arguments, " "))
	if c.Initrd != "" {
		args = append(args, "-initrd", c.Initrd)
	}
	return append(args, networkArguments(c, taps)...)
}

// runBare runs the monitor. Its output is the machine's.
func (m *Machine) runBare(s Starter) error {
	return m.run(s, io.MultiWriter(m.Console, m.config.Bare.Output))
}

// restarted is the exit code of a kernel that restarts its machine, as Linux does after a panic.
const restarted = 1

// ExitCode is that of a bare machine that has ended: the guest's value of isa-debug-exit or, in User-Mode
// Linux, with /proc/exitcode; 0 if it has switched itself off; 128 and the signal for a monitor that was killed. A QEMU
// that fails while the machine runs exits with 1, as for the guest's 0.
func (m *Machine) ExitCode() int {
	state := m.monitor.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	code := state.ExitCode()
	if m.button == nil {
		return max(code, 0)
	}
	if code&1 == 1 { // QEMU exits with twice the value of isa-debug-exit, and one
		return code >> 1
	}
	if code == 0 && m.button.sawReset() {
		return restarted
	}
	return max(code, 0)
}

// PowerDown asks a bare machine to end: by the power button of a PC, which a kernel may ignore, or, with User-Mode
// Linux, by SIGTERM, with which the kernel ends at once.
func (m *Machine) PowerDown() error {
	if m.button == nil {
		return m.monitor.Process.Signal(syscall.SIGTERM)
	}
	return m.button.press()
}

// powerButton is a control connection to QEMU on which nothing but the power button is pressed. Its events say how the
// machine ends.
type powerButton struct {
	control *control
	// ready is closed when the machine runs, ended when all events of QEMU have been read. failed is why it does not
	// run, to be read after the end.
	ready, ended chan struct{}
	failed       error

	mu    sync.Mutex
	reset bool
}

func newPowerButton(conn net.Conn) *powerButton {
	return &powerButton{control: &control{conn: conn}, ready: make(chan struct{}), ended: make(chan struct{})}
}

// watch starts the machine within the limit and reads events until QEMU ends the connection, or sends a line that is
// too long. It ends with the monitor, which has been started.
func (b *powerButton) watch(limit time.Duration) {
	defer close(b.ended)
	defer b.control.conn.Close() // so that QEMU does not wait for a reader
	if b.failed = b.control.runWithin(limit, "cont", nil, nil); b.failed != nil {
		return
	}
	if b.failed = b.control.conn.SetDeadline(time.Time{}); b.failed != nil {
		return
	}
	close(b.ready)
	for {
		a, err := b.control.read()
		if err != nil {
			return
		}
		var why struct{ Reason string }
		if a.Event == "SHUTDOWN" && json.Unmarshal(a.Data, &why) == nil && why.Reason == "guest-reset" {
			b.mu.Lock()
			b.reset = true
			b.mu.Unlock()
		}
	}
}

func (b *powerButton) sawReset() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reset
}

// waitReady waits until the machine runs. watch has a limit, so that one of both comes.
func (b *powerButton) waitReady() error {
	select {
	case <-b.ready:
		return nil
	case <-b.ended:
		if b.failed == nil { // it ran
			return nil
		}
		return fmt.Errorf("QEMU has not started the machine: %w", b.failed)
	}
}

// press does not wait for the answer.
func (b *powerButton) press() error {
	if err := b.control.conn.SetWriteDeadline(time.Now().Add(controlTimeout)); err != nil {
		return err
	}
	_, err := io.WriteString(b.control.conn, `{"execute":"system_powerdown"}`+"\n")
	return err
}
