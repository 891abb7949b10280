package vmm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// qemuProgram is QEMU, in the jail and on the host.
const qemuProgram = "/usr/bin/qemu-system-x86_64"

// CheckPrograms returns which of the programs that driver QEMU needs are missing on this machine.
func CheckPrograms() error {
	if _, err := os.Stat(qemuProgram); err != nil {
		return fmt.Errorf("no QEMU: %w; install package qemu-system-x86", err)
	}
	if program := virtiofsd(exists, "", 0)[0]; !exists(program) {
		return fmt.Errorf("no virtiofsd: neither %s nor %s exists; install package virtiofsd, or QEMU 7", virtiofsdRust,
			virtiofsdC)
	}
	return nil
}

// CheckKVM returns why QEMU could not use KVM on this machine.
func CheckKVM() error {
	f, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("no KVM: %w; enable the processor's virtualization, or emulate it: accelerator = \"tcg\"", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	_, err = deviceGroups(st.Mode, st.Gid)
	return err
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// kvmDevice is the device of the processor's virtualization, in the jail and on the host.
const kvmDevice = "/dev/kvm"

// qemuUser returns the credentials of QEMU, with the group of /dev/kvm, usually kvm, if QEMU opens that device.
func qemuUser(s Starter, c Config) (*syscall.Credential, error) {
	user := c.credential()
	if !c.KVM {
		return user, nil
	}
	err := s.Do(func() error {
		var st unix.Stat_t
		if err := unix.Stat(kvmDevice, &st); err != nil {
			return fmt.Errorf("%s: %w", kvmDevice, err)
		}
		groups, err := deviceGroups(st.Mode, st.Gid)
		user.Groups = groups
		return err
	})
	return user, err
}

// deviceGroups returns the groups that a user needs, who is neither its owner nor in its group, to read and write a
// device of that mode and group.
func deviceGroups(mode, group uint32) ([]uint32, error) {
	const others, members = 0o006, 0o060
	switch {
	case mode&others == others:
		return nil, nil
	case mode&members == members && group != 0:
		return []uint32{group}, nil
	}
	return nil, fmt.Errorf("mode %#o and group %d of %s do not let QEMU use it, which is not root: give it the group kvm "+
		"and mode 0660", mode&0o777, group, kvmDevice)
}

// firstFile is the descriptor of the first of exec.Cmd.ExtraFiles.
const firstFile = 3

// passed are files for a child, which knows them by number.
type passed struct{ files []*os.File }

func (p *passed) add(f *os.File) int {
	p.files = append(p.files, f)
	return firstFile + len(p.files) - 1
}

func (p *passed) close() {
	for _, f := range p.files {
		_ = f.Close()
	}
}

// startQEMU starts virtiofsd for the shared directory, and QEMU, without privileges.
func startQEMU(s Starter, c Config) (_ *Machine, err error) {
	m := &Machine{config: c, Console: NewTail()}
	var files passed
	defer files.close()
	defer func() {
		if err != nil {
			m.killHelpers()
		}
	}()
	user, err := qemuUser(s, c)
	if err != nil {
		return nil, err
	}
	path, err := startVirtiofsd(s, c, m)
	if err != nil {
		return nil, fmt.Errorf("start virtiofsd: %w", err)
	}
	share, err := connect(s, path)
	if err != nil {
		return nil, fmt.Errorf("connect with virtiofsd: %w", err)
	}
	f := qemuFiles{share: files.add(share)}
	if err := m.connectQEMU(&f, &files); err != nil {
		return nil, err
	}
	for _, n := range c.NICs {
		f.taps = append(f.taps, files.add(n.File))
	}
	m.monitor = exec.Command(qemuProgram, qemuArguments(c, f)...)
	m.monitor.Env = []string{"PATH=/usr/bin"}
	m.monitor.ExtraFiles = files.files
	m.monitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
	if err := m.run(s, m.Console); err != nil {
		return nil, errors.Join(err, m.Line.Close(), m.control.conn.Close())
	}
	return m, nil
}

// connectQEMU makes the line to the agent and the connection to QEMU itself.
func (m *Machine) connectQEMU(f *qemuFiles, files *passed) error {
	line, theirs, err := socketPair()
	if err != nil {
		return err
	}
	m.Line, f.line = line, files.add(theirs)
	conn, theirs, err := socketPair()
	if err != nil {
		return errors.Join(err, line.Close())
	}
	m.control, f.control = &control{conn: conn}, files.add(theirs)
	return nil
}

// qemuFiles are the descriptors of QEMU: the connections to virtiofsd, the agent and the shim, and the taps in the
// order of the NICs.
type qemuFiles struct {
	share, line, control int
	taps                 []int
}

// tcgCache is the size of the buffer for translated code, in MiB. QEMU's default is a gigabyte.
const tcgCache = 64

// pc is the machine: one of as few devices as it can have.
const pc = "q35,usb=off,vmport=off,smbus=off,sata=off,graphics=off,i8042=off"

// machineArguments are those of every machine: nothing that is not named, no system calls that QEMU does not need, the
// processor, a serial port for the console, and the control connection.
func machineArguments(c Config, machine string, control int) []string {
	accelerator, cpu := "kvm", "host"
	if !c.KVM {
		accelerator, cpu = fmt.Sprintf("tcg,tb-size=%d", tcgCache), "max"
	}
	return []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", machine, "-accel", accelerator, "-cpu", cpu,
		"-chardev", fmt.Sprintf("socket,id=control,fd=%d", control), "-mon", "chardev=control,mode=control",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
}

// networkArguments are the network interfaces.
func networkArguments(c Config, taps []int) (args []string) {
	for i, n := range c.NICs {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=n%d,fd=%d", i, taps[i]),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, n.MAC))
	}
	return args
}

func qemuArguments(c Config, f qemuFiles) []string {
	args := append(machineArguments(c, pc+",memory-backend=mem", f.control),
		"-smp", fmt.Sprintf("%d,maxcpus=%d", c.CPUs, max(c.CPUs, c.Limits.CPUs)),
		"-m", fmt.Sprintf("%dM,maxmem=%dM", c.Memory, c.Memory+c.memoryReserve()),
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", c.Memory),
		"-chardev", fmt.Sprintf("socket,id=fs0,fd=%d", f.share),
		"-device", "vhost-user-fs-pci,chardev=fs0,tag="+env.ShareTag,
		"-device", "virtio-serial-pci", "-chardev", fmt.Sprintf("socket,id=agent,fd=%d", f.line),
		"-device", "virtserialport,chardev=agent,name="+env.VirtioPort,
		"-kernel", c.Kernel, "-initrd", c.Initrd, "-append", qemuParameters(c),
	)
	if more := c.memoryReserve(); more > 0 {
		args = append(args, "-object", fmt.Sprintf("memory-backend-memfd,id=reserve,size=%dM,share=on", more),
			"-device", "virtio-mem-pci,memdev=reserve,requested-size=0,id="+memoryDevice)
	}
	return append(args, networkArguments(c, f.taps)...)
}

// qemuParameters is the kernel's command line. Without KVM, the clock is that of the emulation.
func qemuParameters(c Config) string {
	p := []string{
		"console=ttyS0", "reboot=t", "panic=-1", "quiet", "audit=0", "cgroup_no_v1=all", "rdinit=/init",
		// Memory that is added is used at once, and does not hold more of the kernel's own than it can.
		"memhp_default_state=online", "memory_hotplug.online_policy=auto-movable", filesParameter(),
	}
	if !c.KVM {
		p = append(p, "tsc=reliable", "no_timer_check", "cryptomgr.notests")
	}
	return strings.Join(p, " ")
}
