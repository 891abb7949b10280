package vmm

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// umlLine is the descriptor of the serial line in the kernel's process.
const umlLine = 3

// startUML starts User-Mode Linux. It traces the guest's processes by ptrace, its default: its seccomp mode is meant
// for trusted programs only.
//
// It is process 1 of a PID namespace: the processes of the guest are processes of the host, and all end with it.
func startUML(s Starter, c Config) (*Machine, error) {
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
	m.monitor = exec.Command(c.Kernel, umlArguments(c)...)
	m.monitor.Env = []string{"PATH=/usr/bin", "HOME=" + c.Temp, "TMPDIR=" + c.MemoryDir}
	m.monitor.ExtraFiles = append(m.monitor.ExtraFiles, theirs)
	m.monitor.Stdout, m.monitor.Stderr = m.Console, m.Console
	m.monitor.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setsid: true,
	}
	if err := m.run(s); err != nil {
		_ = line.Close()
		return nil, err
	}
	return m, nil
}

func umlArguments(c Config) []string {
	args := []string{
		fmt.Sprintf("mem=%dM", c.Memory), "initrd=" + c.Initrd, "rdinit=/init",
		// One console, for output; one serial line.
		"con=null", "con0=null,fd:1", "ssl=null", fmt.Sprintf("ssl0=fd:%d", umlLine),
		"panic=-1", "quiet", "cgroup_no_v1=all", "audit=0",
		// No mount in the guest shows anything above the shared directory.
		"hostfs=" + c.Shared,
		env.Port + "=/dev/ttyS0", env.Share + "=hostfs:",
	}
	for i, n := range c.NICs {
		args = append(args, fmt.Sprintf("vec%d:transport=tap,ifname=%s,mac=%s", i, n.Tap, n.MAC))
	}
	return args
}
