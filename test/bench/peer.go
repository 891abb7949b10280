package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/test/images"
)

// peerHost is what all peers use: the same OCI runtimes, plugins, network configuration and images as podd.
type peerHost struct {
	bin, tools, cni string
	registry        *images.Registry
}

// programPath finds an OCI runtime or conmon as podd does: the repository's own first.
func (h peerHost) programPath(name string) string {
	if path := filepath.Join(h.tools, name); exists(path) {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return name // the peer reports that it is missing
	}
	return path
}

// programVersion returns the first line that an OCI runtime or conmon prints as its version, or why there is none.
func (h peerHost) programVersion(name string) string {
	out, err := exec.Command(h.programPath(name), "--version").Output()
	if err != nil {
		return fmt.Sprintf("%s: %v", name, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// monitorVersion returns the version of conmon, and that it is static if it is: its memory and time depend on that.
func (h peerHost) monitorVersion() string {
	version := h.programVersion("conmon")
	if f, err := elf.Open(h.programPath("conmon")); err == nil {
		defer f.Close()
		if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			version += " (static)"
		}
	}
	return version
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// peer is the process of another runtime, with a private directory.
type peer struct {
	dir, binary string
	args, env   []string
	kubelet     *kubelet
	cmd         *exec.Cmd
}

// newPeer creates the peer's directory and calls configure, which writes its configuration there.
func newPeer(name, socket string, configure func(dir string) error) (*server, *peer, error) {
	dir, err := os.MkdirTemp("/tmp", "bench-"+name+"-")
	if err != nil {
		return nil, nil, err
	}
	k, err := newKubelet(filepath.Join(dir, socket), "/"+filepath.Base(dir), dir)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &peer{dir: dir, kubelet: k}
	s := &server{name: name, kubelet: k, process: p, mark: dir, cleanup: p.remove}
	return s, p, errors.Join(mountRun(dir), configure(dir))
}

// Start starts the peer and waits until it answers.
func (p *peer) Start(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(p.binary, append(slices.Clone(p.args), args...)...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if err := p.kubelet.answers(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, p.logTail())
	}
	return nil
}

func (p *peer) logTail() string {
	data, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// Stop stops the peer; its pods keep running.
func (p *peer) Stop() error {
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	hang := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer hang.Stop()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) { // the exit code after SIGTERM differs between peers
		return err
	}
	return nil
}

// Pid returns the daemon's pid.
func (p *peer) Pid() int { return p.cmd.Process.Pid }

// remove stops the peer and removes its mounts, its cgroup and its directory.
func (p *peer) remove() error {
	var errs []error
	if p.cmd != nil && p.cmd.ProcessState == nil {
		errs = append(errs, p.Stop())
	}
	errs = append(errs, unmountBelow(p.dir))
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	errs = append(errs, err)
	for _, h := range hierarchies {
		if err := unix.Rmdir(filepath.Join(h.Mountpoint, filepath.Base(p.dir))); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove the pods' cgroup: %w", err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}
