// Package vmm starts the virtual machine monitor of a pod, by one of its drivers. It knows neither containers nor
// networks: the caller has made the taps, and the directories that the monitor sees (package jail).
package vmm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The drivers.
const (
	// UML is User-Mode Linux: a Linux kernel that is a process of the host. It needs no hardware support. It gives a
	// pod a separate kernel; it is not a wall against hostile code.
	UML = "uml"
	// QEMU is qemu-system, with KVM or, without it, slow emulation.
	QEMU = "qemu"
)

// DefaultImages is where guest images are, in a directory for each driver.
const DefaultImages = "/var/lib/podd/vm"

// Config describes a machine. Paths are those that the monitor sees.
type Config struct {
	// Kernel and Initrd are files.
	Kernel, Initrd string
	// Shared is the directory that the guest gets.
	Shared string
	// Temp is a directory for sockets and the like, Memory for the guest's memory (a tmpfs).
	Temp, MemoryDir string
	// User is the user and group of the monitor, which is not root: it gets files as descriptors, or it may open
	// it as that user.
	User uint32
	// Memory is the size of the guest's memory in MiB, CPUs the number of its processors.
	Memory, CPUs int
	// Limits are its largest size; only QEMU can grow.
	Limits Limits
	// KVM is true if the processor's virtualization is to be used; only QEMU can.
	KVM bool
	// NICs are its network interfaces.
	NICs []NIC
	// Bare makes it a machine without an agent, and so without Machine.Line; nil for others.
	Bare *Bare
}

func (c Config) credential() *syscall.Credential {
	return &syscall.Credential{Uid: c.User, Gid: c.User}
}

// NIC is a network interface: the guest's end of a tap. File is the tap, opened, for QEMU, which closes it.
type NIC struct {
	Tap, MAC string
	File     *os.File
}

// Starter starts programs where the monitor belongs. Do runs f where paths are those of the monitor.
type Starter interface {
	Start(cmd *exec.Cmd) error
	Do(f func() error) error
}

// Machine is a running virtual machine.
type Machine struct {
	// Line is the connection to the agent. Paced is true if it cannot take much at a time.
	Line  net.Conn
	Paced bool
	// Console has the end of the output of the guest's kernel and agent.
	Console *Tail

	config  Config
	monitor *exec.Cmd
	helpers []*helper
	ended   chan struct{}

	// growing serialises Grow. control is nil for a monitor that cannot change its machine; added is the memory that
	// was added, in MiB.
	growing sync.Mutex
	control *control
	added   int

	// button is that of a bare machine of QEMU, nil for others.
	button *powerButton
}

// helper is a program next to the monitor, without which the guest cannot go on. ended is closed when it has ended.
type helper struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// outputDelay is how long the output of a monitor or helper that has ended is waited for. A child of it may hold the
// output open: User-Mode Linux that is killed while it tries ptrace leaves a stopped child, which ends with the jail.
// It is also how long a helper that cannot be killed is waited for: one that waits for a volume whose server hangs.
// Both must be over before podd gives up its call of the shim.
const outputDelay = 3 * time.Second

// startHelper starts a helper.
func (m *Machine) startHelper(s Starter, cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = m.Console, m.Console, outputDelay
	if err := s.Start(cmd); err != nil {
		return err
	}
	h := &helper{cmd: cmd, ended: make(chan struct{})}
	m.helpers = append(m.helpers, h)
	go func() {
		defer close(h.ended)
		_ = cmd.Wait()
	}()
	return nil
}

// Start starts a machine with a driver. It does not wait for the guest.
func Start(s Starter, driver string, c Config) (*Machine, error) {
	switch {
	case driver == UML && c.Bare != nil:
		return startBareUML(s, c)
	case driver == UML:
		return startUML(s, c)
	case driver == QEMU && c.Bare != nil:
		return startBareQEMU(s, c)
	case driver == QEMU:
		return startQEMU(s, c)
	}
	return nil, fmt.Errorf("driver %q: want %s or %s", driver, UML, QEMU)
}

// panicGrace is how long a kernel that panics may take to say why.
const panicGrace = 200 * time.Millisecond

// run starts the monitor. It ends with the guest's kernel and any of its helpers, and they with it: a guest that hangs,
// or whose files are gone, would look as if it ran.
//
// The output goes to out. A reader of out that does not read, such as that of a log, does not hide the end.
func (m *Machine) run(s Starter, out io.Writer) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	m.ended = make(chan struct{})
	m.monitor.Stdout, m.monitor.Stderr = write, write
	err = s.Start(m.monitor)
	_ = write.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", m.monitor.Path, err), read.Close())
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, read)
	}()
	for _, h := range m.helpers {
		go func() {
			<-h.ended
			_ = m.monitor.Process.Kill()
		}()
	}
	go func() {
		select {
		case <-m.Console.panicked:
			m.Stop(panicGrace)
		case <-m.ended:
		}
	}()
	go func() {
		defer close(m.ended)
		_ = m.monitor.Wait()
		m.killHelpers()
		select {
		case <-copied:
		case <-time.After(outputDelay):
		}
		_ = read.Close()
		m.closeConnections()
	}()
	return nil
}

// closeConnections closes those to the agent and to the monitor.
func (m *Machine) closeConnections() {
	if m.Line != nil {
		_ = m.Line.Close()
	}
	if m.control != nil {
		_ = m.control.conn.Close()
	}
	if m.button != nil {
		_ = m.button.control.conn.SetReadDeadline(time.Now().Add(outputDelay))
		<-m.button.ended
		_ = m.button.control.conn.Close()
	}
}

// killHelpers kills the programs next to the monitor.
func (m *Machine) killHelpers() {
	limit := time.After(outputDelay)
	for _, h := range m.helpers {
		_ = h.cmd.Process.Kill()
	}
	for _, h := range m.helpers {
		select {
		case <-h.ended:
		case <-limit:
			return
		}
	}
}

// Pid is the monitor's.
func (m *Machine) Pid() int { return m.monitor.Process.Pid }

// Ended is closed when the machine and all its processes have ended.
func (m *Machine) Ended() <-chan struct{} { return m.ended }

// HasEnded reports whether the machine has ended.
func (m *Machine) HasEnded() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// Stop waits until the machine has ended by itself, at most for grace, then kills it.
func (m *Machine) Stop(grace time.Duration) {
	select {
	case <-m.ended:
	case <-time.After(grace):
		_ = m.monitor.Process.Kill()
		<-m.ended
	}
}

// socketPair returns two connected sockets: a connection, and a file for a child.
func socketPair() (net.Conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "line"), os.NewFile(uintptr(pair[1]), "line of the machine")
	defer ours.Close()
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return c, theirs, nil
}

var _ io.Writer = (*Tail)(nil)
