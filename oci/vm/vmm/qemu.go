package vmm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// nobody runs QEMU: what it needs it gets as a descriptor, or all may read it.
const nobody = 65534

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
	m := &Machine{Console: &Tail{}}
	var files passed
	defer files.close()
	defer func() {
		if err != nil {
			m.killHelpers()
		}
	}()
	share, err := startVirtiofsd(s, c, m)
	if err != nil {
		return nil, fmt.Errorf("start virtiofsd: %w", err)
	}
	f := qemuFiles{share: files.add(share)}
	line, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	m.Line, f.line = line, files.add(theirs)
	for _, n := range c.NICs {
		f.taps = append(f.taps, files.add(n.File))
	}
	m.monitor = exec.Command("/usr/bin/qemu-system-x86_64", qemuArguments(c, f)...)
	m.monitor.Env = []string{"PATH=/usr/bin"}
	m.monitor.ExtraFiles = files.files
	m.monitor.Stdout, m.monitor.Stderr = m.Console, m.Console
	m.monitor.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setsid: true,
		Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
	}
	if err := m.run(s); err != nil {
		return nil, errors.Join(err, line.Close())
	}
	return m, nil
}

// qemuFiles are the descriptors of QEMU: the connection to virtiofsd, the line, and the taps in the order of the NICs.
type qemuFiles struct {
	share, line int
	taps        []int
}

// tcgCache is the size of the buffer for translated code, in MiB. QEMU's default is a gigabyte.
const tcgCache = 64

func qemuArguments(c Config, f qemuFiles) []string {
	accelerator, cpu := "kvm", "host"
	if !c.KVM {
		accelerator, cpu = fmt.Sprintf("tcg,tb-size=%d", tcgCache), "max"
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-M", "q35,usb=off,vmport=off,smbus=off,sata=off,graphics=off,i8042=off,memory-backend=mem",
		"-accel", accelerator, "-cpu", cpu, "-smp", fmt.Sprint(c.CPUs), "-m", fmt.Sprintf("%dM", c.Memory),
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", c.Memory),
		"-chardev", fmt.Sprintf("socket,id=fs0,fd=%d", f.share), "-device", "vhost-user-fs-pci,chardev=fs0,tag=podd",
		"-device", "virtio-serial-pci", "-chardev", fmt.Sprintf("socket,id=agent,fd=%d", f.line),
		"-device", "virtserialport,chardev=agent,name=" + env.VirtioPort,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-kernel", c.Kernel, "-initrd", c.Initrd, "-append", qemuParameters(c),
	}
	for i, n := range c.NICs {
		args = append(args, "-netdev", fmt.Sprintf("tap,id=n%d,fd=%d", i, f.taps[i]),
			"-device", fmt.Sprintf("virtio-net-pci,netdev=n%d,mac=%s,romfile=", i, n.MAC))
	}
	return args
}

// qemuParameters is the kernel's command line. Without KVM, the clock is that of the emulation.
func qemuParameters(c Config) string {
	p := []string{
		"console=ttyS0", "reboot=t", "panic=-1", "quiet", "audit=0", "cgroup_no_v1=all", "rdinit=/init",
		env.Share + "=virtiofs:podd",
	}
	if !c.KVM {
		p = append(p, "tsc=reliable", "no_timer_check", "cryptomgr.notests")
	}
	return strings.Join(p, " ")
}
