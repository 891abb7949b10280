package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OOMCause says which process of a container the kernel killed last for lack of memory, and which limit was reached:
// the container's, its sandbox's (that of a virtual machine or of gVisor), the pod's, that of a cgroup above, or the
// memory of the node. Both are ids; the cgroup of the container or of its sandbox has one of them in its name. The
// source is the kernel's log (mm/oom_kill.c, since Linux 5.0), which names both cgroups. It returns "" where that log
// cannot be read or no longer has the kill; the kernel writes at most ten kills in five seconds.
func OOMCause(container, sandbox string) (cause string) {
	// Not an os.File: its Read would wait for the next record.
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	buf := make([]byte, 8<<10) // the longest record
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // EPIPE: the next record was overwritten
		case err != nil || n <= 0:
			return cause
		case bytes.Contains(buf[:n], []byte(oomRecord)):
			if c := oomCause(string(buf[:n]), container, sandbox); c != "" {
				cause = c
			}
		}
	}
}

// oomRecord begins the text of a kill.
const oomRecord = ";oom-kill:constraint="

// userPriority is the lowest priority of a record that a process wrote; the kernel's have a lower one.
const userPriority = 8

// oomCause is OOMCause of one record of the kernel's log, "" if that is about something else.
func oomCause(record, container, sandbox string) string {
	head, text, _ := strings.Cut(record, oomRecord)
	priority, _, _ := strings.Cut(head, ",")
	if n, err := strconv.Atoi(priority); err != nil || n >= userPriority {
		return "" // a process wrote it
	}
	text, _, _ = strings.Cut(text, "\n")
	limits, victim, _ := strings.Cut(text, ",task_memcg=")
	group, process, _ := strings.Cut(victim, ",task=")
	end := strings.LastIndex(process, ",pid=") // the name of the process may have commas
	own := podCgroup(group, container)
	if own == "" {
		own = podCgroup(group, sandbox)
	}
	if own == "" || end < 0 {
		return ""
	}
	_, limit, found := strings.Cut(limits, ",oom_memcg=")
	var where string
	switch {
	case !found:
		where = "the node had no memory left"
	case podCgroup(limit, container) != "":
		where = "the container reached its memory limit"
	case podCgroup(limit, sandbox) != "":
		where = "the sandbox of its pod reached its memory limit"
	case limit == own:
		where = "its pod reached its memory limit"
	default:
		where = fmt.Sprintf("cgroup %.200s reached its memory limit", limit)
	}
	return fmt.Sprintf("the kernel killed process %q: %s", process[:end], where)
}

// podCgroup returns the parent of the cgroup with the id in its name that is, or contains, the cgroup dir; "" if none.
func podCgroup(dir, id string) string {
	before, _, found := strings.Cut(dir, id)
	if !found || id == "" {
		return ""
	}
	return path.Dir(before + "x")
}
