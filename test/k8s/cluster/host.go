package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Host represents a machine: a network namespace and a mount namespace, held by a sleeping process. The mounts and
// packet filter rules of a host disappear with its last process.
type Host struct {
	Name   string  `json:"name"`
	Addr   string  `json:"addr"`
	Holder Process `json:"holder"`

	dir string // the cluster's
}

// boot creates the namespaces.
func (h *Host) boot() error {
	cmd := exec.Command("sleep", "infinity")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("create the namespaces of %s: %w", h.Name, err)
	}
	go func() { _ = cmd.Wait() }()
	start, _, err := stat(cmd.Process.Pid)
	if err != nil {
		return err
	}
	h.Holder = Process{Name: h.Name, Pid: cmd.Process.Pid, Start: start}
	return h.do(h.furnish)
}

// furnish prepares the mount namespace. Mounts are shared, as systemd makes them and as the kubelet's volumes need it.
// Kubelet, CNI plugins and add-ons have paths that cannot be configured: in /run, which is a file system of the host's
// own, and in /opt, /var/lib and /var/log, which are overlays.
func (h *Host) furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	if err := unix.Mount("podd-test", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	return errors.Join(h.overlay("/opt", "/opt"), h.overlay("/var/lib", "/var/lib"), h.overlay("/var/log", "/var/log"))
}

// overlay mounts on dir what is in lower; the host's changes are in a directory of its own, which survives a reboot.
func (h *Host) overlay(dir, lower string) error {
	own := filepath.Join(h.dir, "disk", h.Name, dir)
	upper, work := filepath.Join(own, "upper"), filepath.Join(own, "work")
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+lower+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount %s: %w", dir, err)
	}
	return nil
}

// ns returns the path of one of the host's namespaces.
func (h *Host) ns(kind string) string {
	return filepath.Join("/proc", strconv.Itoa(h.Holder.Pid), "ns", kind)
}

// do runs f on the host: on a thread in its namespaces, which ends afterwards.
func (h *Host) do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() != unix.Getpid() {
			result <- h.enter(f)
			return
		}
		// This is the main thread, which cannot end, and whose namespaces /proc shows as the process's. It stays locked
		// while another thread runs f.
		result <- h.do(f)
		runtime.UnlockOSThread()
	}()
	return <-result
}

// enter moves the calling thread into the host's namespaces and calls f.
func (h *Host) enter(f func() error) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // required by setns into a mount namespace
		return fmt.Errorf("unshare: %w", err)
	}
	for _, n := range []struct {
		kind string
		flag int
	}{{"net", unix.CLONE_NEWNET}, {"mnt", unix.CLONE_NEWNS}} {
		fd, err := os.Open(h.ns(n.kind))
		if err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
		defer fd.Close()
		if err := unix.Setns(int(fd.Fd()), n.flag); err != nil {
			return fmt.Errorf("enter %s's %s namespace: %w", h.Name, n.kind, err)
		}
	}
	return f()
}

// start runs a program on the host.
func (h *Host) start(name, program string, args ...string) (p Process, err error) {
	err = h.do(func() error {
		p, err = launch(h.dir, name, program, args...)
		return err
	})
	return p, err
}

// Run runs a program on the host and returns its output.
func (h *Host) Run(program string, args ...string) (out string, err error) {
	err = h.do(func() error {
		data, err := exec.Command(program, args...).CombinedOutput()
		out = string(data)
		if err != nil {
			return fmt.Errorf("%s on %s: %w: %s", program, h.Name, err, out)
		}
		return nil
	})
	return out, err
}

// off kills all processes of the host at once, as a power cut does.
func (h *Host) off(cgroups []string) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		pids, err := h.processes(cgroups)
		if err != nil || len(pids) == 0 && !h.Holder.Alive() { // a process that is exiting has no namespaces
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: processes %v survive SIGKILL", h.Name, pids)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
		for _, c := range cgroups {
			if err := thaw(c); err != nil {
				return err
			}
		}
	}
}

// namespaces returns the host's namespaces as in /proc; none if its holder has ended. It fails if they are the
// machine's own, because the caller kills all processes in them.
func (h *Host) namespaces() (map[string]bool, error) {
	own := map[string]bool{}
	for _, kind := range []string{"mnt", "net"} {
		link, err := os.Readlink(h.ns(kind))
		if err != nil || !h.Holder.Alive() {
			return nil, nil
		}
		for _, machine := range []string{"1", "self", strconv.Itoa(os.Getppid())} {
			if its, err := os.Readlink(filepath.Join("/proc", machine, "ns", kind)); err == nil && its == link {
				return nil, fmt.Errorf("host %s is in the %s namespace of process %s", h.Name, kind, machine)
			}
		}
		own[link] = true
	}
	return own, nil
}

// processes lists the processes in the host's mount or network namespace and in its pods' cgroups.
func (h *Host) processes(cgroups []string) ([]int, error) {
	own, err := h.namespaces()
	if err != nil {
		return nil, err
	}
	list, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var last, found []int // the holder is killed last: without it the namespaces are unknown
	for _, dir := range list {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		mnt, _ := os.Readlink(filepath.Join(dir, "ns", "mnt"))
		net, _ := os.Readlink(filepath.Join(dir, "ns", "net"))
		if _, ended, err := stat(pid); err != nil || ended {
			continue
		}
		switch {
		case pid == h.Holder.Pid && own[mnt]:
			last = append(last, pid)
		case own[mnt] || own[net] || inCgroup(dir, cgroups):
			found = append(found, pid)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return last, nil
}
