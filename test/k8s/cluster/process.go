package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a process of the cluster, identified by its pid and its start time, so that a reused pid is not taken for
// it.
type Process struct {
	Name  string `json:"name"`
	Pid   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot, as in /proc/PID/stat
}

// launch starts a program with its output appended to log/<name>.log. It runs in its own session, so that it outlives
// this process and no ^C reaches it.
func launch(dir, name, program string, args ...string) (Process, error) {
	log, err := os.OpenFile(filepath.Join(dir, "log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return Process{}, fmt.Errorf("start %s: %w", name, err)
	}
	start, _, err := stat(cmd.Process.Pid)
	if err != nil {
		return Process{}, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it; its log has the cause of its exit
	return Process{Name: name, Pid: cmd.Process.Pid, Start: start}, nil
}

// stat returns the start time of a process, and whether it has ended. One whose first thread is a zombie has not while
// another thread is still being killed: its files are open and its locks held.
func stat(pid int) (start string, ended bool, err error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", false, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name in parentheses may have any characters
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", false, fmt.Errorf("stat of %d: %q", pid, data)
	}
	state, threads := fields[0], fields[17]
	return fields[19], state == "Z" && threads == "1", nil
}

// Alive reports whether the process runs.
func (p Process) Alive() bool {
	if p.Pid == 0 {
		return false
	}
	start, ended, err := stat(p.Pid)
	return err == nil && start == p.Start && !ended
}

// end sends the signal and waits until the process has ended. After the limit it kills the process and returns an
// error.
func (p Process) end(sig syscall.Signal, limit time.Duration) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	for deadline := time.Now().Add(limit); p.Alive(); time.Sleep(5 * time.Millisecond) {
		if time.Now().Before(deadline) {
			continue
		}
		return errors.Join(fmt.Errorf("%s does not end %v after %v", p.Name, limit, sig),
			syscall.Kill(p.Pid, syscall.SIGKILL))
	}
	return nil
}
