// Package process identifies processes by pid and start time, waits for them by pidfd, and kills them one by one or
// with all their descendants. It is independent of containers. Drivers, cgroups and the daemon import it.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process identifies a process by pid and start time (field 22 of /proc/<pid>/stat, in clock ticks since boot), so
// that a process that reuses the pid is not mistaken for it.
type Process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// stat has the fields in use of /proc/<pid>/stat.
type stat struct {
	Process
	parent, group, session, flags, threads int
	state                                  byte
	name                                   string
}

// exited reports whether all threads have ended. The state alone is that of the main thread, which is a zombie, too,
// while it waits for the others, and for a moment when another one executes a program.
func (s stat) exited() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

// readStat reads /proc/<pid>/stat. The command name may contain any byte, so fields are counted from the last closing
// parenthesis.
func readStat(pid int) (stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return stat{}, err
	}
	return parseStat(pid, b)
}

func parseStat(pid int, b []byte) (stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return stat{}, fmt.Errorf("malformed stat of process %d", pid)
	}
	f := bytes.Fields(b[end+1:])
	// proc(5) counts from 1 and f[0] is field 3: the number of threads is field 20, start time 22.
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("short stat of process %d", pid)
	}
	s := stat{state: f[0][0], name: string(b[open+1 : end])}
	s.Pid = pid
	var errs [6]error
	s.parent, errs[0] = strconv.Atoi(string(f[1]))
	s.group, errs[1] = strconv.Atoi(string(f[2]))
	s.session, errs[2] = strconv.Atoi(string(f[3]))
	s.threads, errs[3] = strconv.Atoi(string(f[17]))
	s.Start, errs[4] = strconv.ParseUint(string(f[19]), 10, 64)
	s.flags, errs[5] = strconv.Atoi(string(f[6]))
	return s, errors.Join(errs[:]...)
}

// Identify returns the process that has the pid now.
func Identify(pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return s.Process, nil
}

// Alive reports whether a thread of the process is running. A zombie has none.
func (p Process) Alive() bool {
	if p.Pid <= 0 {
		return false
	}
	s, err := readStat(p.Pid)
	return err == nil && s.Start == p.Start && !s.exited()
}

// Exiting reports whether no thread of the process executes its program any longer. The first process of a PID
// namespace exits when all others are gone: those that other processes have put there, too.
func (p Process) Exiting() bool {
	if !p.Alive() {
		return true
	}
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(p.Pid) + "/task/*/stat")
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has exited
		}
		if s, err := parseStat(p.Pid, b); err != nil || s.flags&exitingFlag == 0 {
			return false
		}
	}
	return true
}

// exitingFlag is PF_EXITING in the flags of /proc/<pid>/stat.
const exitingFlag = 4

// exists reports whether the pid belongs to the process, which may be a zombie.
func (p Process) exists() bool {
	s, err := readStat(p.Pid)
	return err == nil && s.Start == p.Start
}

// open returns a pidfd of the process, os.ErrProcessDone if it is gone. The start time is compared after the pidfd
// exists, so a process that reuses the pid is not mistaken for it.
func (p Process) open() (*os.File, error) {
	if p.Pid <= 0 {
		return nil, os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) || err != nil && !p.exists() {
		// Linux before 6.15 returns EINVAL for a process that is gone while its session or group has other members.
		return nil, os.ErrProcessDone
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", p.Pid, err)
	}
	if !p.exists() {
		unix.Close(fd)
		return nil, os.ErrProcessDone
	}
	// Non-blocking makes os.NewFile register it with the runtime's poller: waiting costs no thread.
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("pidfd of process %d: %w", p.Pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd:"+strconv.Itoa(p.Pid)), nil
}

// Signal sends to the process. A process that is gone is not an error.
func (p Process) Signal(sig syscall.Signal) error {
	f, err := p.open()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), sig, nil, 0) })
	if err = errors.Join(err, sent); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal %d to process %d: %w", int(sig), p.Pid, err)
	}
	return nil
}

// Wait returns when the process has exited.
func (p Process) Wait(ctx context.Context) error {
	f, err := p.open()
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return waitReadable(ctx, f)
}
