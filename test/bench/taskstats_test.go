package main

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// TestExitsAreReported: the kernel's report of a process has the time that its parent sees as well.
func TestExitsAreReported(t *testing.T) {
	e, err := listenExits()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		t.Skip("needs CAP_NET_ADMIN, the first PID and user namespaces and CONFIG_TASKSTATS:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=3000")
	failed := cmd.Run()
	list, err := e.close()
	if err := errors.Join(failed, err); err != nil {
		t.Fatal(err)
	}
	want := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	for _, r := range list {
		if r.thread != cmd.Process.Pid {
			continue
		}
		// The kernel's figure lacks what the process has done since the last tick of the scheduler.
		if r.comm != "dd" || r.process != r.thread || (r.processor-want).Abs() > 20*time.Millisecond {
			t.Errorf("report %+v, want dd, the first thread of its process, %v", r, want)
		}
		return
	}
	t.Errorf("%d reports, want one of process %d", len(list), cmd.Process.Pid)
}

// TestParseExit reads reports as the kernel writes them: the thread's, and for the last thread that of the process.
func TestParseExit(t *testing.T) {
	stats := make([]byte, unsafe.Sizeof(unix.Taskstats{}))
	var s unix.Taskstats
	binary.NativeEndian.PutUint16(stats, taskstatsVersion)
	copy(stats[unsafe.Offsetof(s.Ac_comm):], "iptables")
	binary.NativeEndian.PutUint32(stats[unsafe.Offsetof(s.Ac_pid):], 7)
	binary.NativeEndian.PutUint32(stats[unsafe.Offsetof(s.Ac_tgid):], 5)
	binary.NativeEndian.PutUint64(stats[unsafe.Offsetof(s.Cpu_run_virtual_total):], 1_500_000)
	got, err := parseExit(report(stats))
	want := ended{comm: "iptables", thread: 7, process: 5, processor: 1500 * time.Microsecond}
	if err != nil || got != want {
		t.Errorf("parseExit = %+v, %v, want %+v", got, err, want)
	}
	old := append([]byte(nil), stats...)
	binary.NativeEndian.PutUint16(old, taskstatsVersion-1)
	for _, c := range []struct {
		name, want string
		message    []byte
	}{
		{"an old kernel's", "want version 12, of Linux 5.19", report(old)},
		{"a short one", "of 328 bytes", report(stats[:328])},
		{"without statistics", "without attribute 3", report(nil)[:nl.SizeofGenlmsg+12]},
		{"empty", "without a header", nil},
		{"torn", "invalid argument", report(stats)[:40]},
	} {
		if _, err := parseExit(c.message); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// report is a message with the statistics of a thread.
func report(stats []byte) []byte {
	thread := nl.NewRtAttr(unix.TASKSTATS_TYPE_AGGR_PID, nil)
	thread.AddRtAttr(unix.TASKSTATS_TYPE_PID, nl.Uint32Attr(7))
	if stats != nil {
		thread.AddRtAttr(unix.TASKSTATS_TYPE_STATS, stats)
	}
	header := nl.Genlmsg{Command: unix.TASKSTATS_CMD_NEW, Version: unix.TASKSTATS_GENL_VERSION}
	return append(append([]byte(nil), header.Serialize()...), thread.Serialize()...)
}
