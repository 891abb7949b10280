// Package process identifies processes by pid and start time, waits for them by pidfd, and kills them one by one or with
// all their descendants. It knows nothing of containers; the drivers below oci are its callers.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Process identifies a process beyond the reuse of its pid: by pid and start time (field 22 of
// /proc/<pid>/stat, in clock ticks since boot).
type Process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// stat is the part of /proc/<pid>/stat that identifies a process and places it in its family.
type stat struct {
	Process
	parent, session int
	state           byte
	name            string
}

// readStat reads /proc/<pid>/stat. The command name may hold any byte, so fields are counted from the last
// closing parenthesis.
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
	// proc(5) counts from 1 and f[0] is field 3: start time is field 22.
	if len(f) < 20 || len(f[0]) != 1 {
		return stat{}, fmt.Errorf("short stat of process %d", pid)
	}
	s := stat{state: f[0][0], name: string(b[open+1 : end])}
	s.Pid = pid
	var errs [3]error
	s.parent, errs[0] = strconv.Atoi(string(f[1]))
	s.session, errs[1] = strconv.Atoi(string(f[3]))
	s.Start, errs[2] = strconv.ParseUint(string(f[19]), 10, 64)
	return s, errors.Join(errs[:]...)
}

// identify returns the process that has the pid now.
func Identify(pid int) (Process, error) {
	s, err := readStat(pid)
	if err != nil {
		return Process{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return s.Process, nil
}

// alive tells whether this very process still runs; a zombie does not.
func (p Process) Alive() bool {
	if p.Pid <= 0 {
		return false
	}
	s, err := readStat(p.Pid)
	return err == nil && s.Start == p.Start && s.state != 'Z' && s.state != 'X'
}

// exists tells whether the pid is still, or once more, this process, be it a zombie.
func (p Process) exists() bool {
	s, err := readStat(p.Pid)
	return err == nil && s.Start == p.Start
}

// open returns a pidfd of the process, os.ErrProcessDone when it is gone. The start time is compared after
// the pidfd exists, so a reused pid is never mistaken for the process.
func (p Process) open() (*os.File, error) {
	if p.Pid <= 0 {
		return nil, os.ErrProcessDone
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if errors.Is(err, unix.ESRCH) || err != nil && !p.exists() {
		// Linux before 6.15 says EINVAL of a process that is gone while others are in its session or group.
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

// signal sends to the process; one that is gone is no error.
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

// wait returns when the process has ended, at once when it is gone already.
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
