package vmm

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// noHostfs has mounts of the kernel's hostfs fail, which would show the guest files of the jail.
const noHostfs = "hostfs=/nowhere"

// umlLine is the descriptor of the serial line in the kernel's process.
const umlLine = 3

// startUML starts User-Mode Linux. It traces the guest's processes by ptrace, its default: its seccomp mode is meant
// for trusted programs only.
//
// The processes of the guest are processes of the host: they end with the jail's PID namespace.
func startUML(s Starter, c Config) (_ *Machine, err error) {
	line, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	// Its consoles and lines are blocking files.
	if err := syscall.SetNonblock(int(theirs.Fd()), false); err != nil {
		return nil, err
	}
	m := &Machine{config: c, Line: line, Paced: true, Console: NewTail()}
	defer func() {
		if err != nil {
			_ = line.Close()
			m.killHelpers()
		}
	}()
	share, err := startVirtiofsd(s, c, m)
	if err != nil {
		return nil, fmt.Errorf("start virtiofsd: %w", err)
	}
	m.monitor = exec.Command(c.Kernel, umlArguments(c, share)...)
	m.monitor.Env = []string{"PATH=/usr/bin", "HOME=" + c.Temp, "TMPDIR=" + c.MemoryDir}
	m.monitor.ExtraFiles = append(m.monitor.ExtraFiles, theirs)
	m.monitor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.credential()}
	return m, m.run(s, m.Console)
}

// virtioFS is the number of a virtio device that serves files.
const virtioFS = 26

// umlArguments has the socket of virtiofsd as share.
func umlArguments(c Config, share string) []string {
	args := []string{
		fmt.Sprintf("mem=%dM", c.Memory), "initrd=" + c.Initrd, "rdinit=/init",
		// One console, for output; one serial line.
		"con=null", "con0=null,fd:1", "ssl=null", fmt.Sprintf("ssl0=fd:%d", umlLine),
		"panic=-1", "quiet", "cgroup_no_v1=all", "audit=0",
		noHostfs, fmt.Sprintf("virtio_uml.device=%s:%d", share, virtioFS), env.Port + "=/dev/ttyS0", filesParameter(),
	}
	for i, n := range c.NICs {
		args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s,mac=%s", i, n.Tap, n.MAC))
	}
	return args
}
