package cgroups

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OOMCause says which process of a container the kernel killed last for lack of memory, and which limit was reached:
// the container's, its sandbox's (that of a virtual machine or of gVisor), the pod's, that of another cgroup, or none.
// Both are ids; the cgroup of the container or of its sandbox has one of them in its name. The source is the kernel's
// log (mm/oom_kill.c, since Linux 5.0), which names both cgroups. It returns "" where that log cannot be read or does
// not have the kill in one piece: the kernel writes at most ten in five seconds. It adds the pressure before the kill,
// where the kernel measures that.
func OOMCause(container, sandbox string) string {
	// Not an os.File: its Read would wait for the next record.
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Rdev != unix.Mkdev(1, 11) { // nodes in containers have links there
		return ""
	}
	var cause, limit string
	buf := make([]byte, 8<<10) // the longest record
	for end := time.Now().Add(readLimit); time.Now().Before(end); {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // EPIPE: the next record was overwritten
		case err != nil || n <= 0:
			if cause != "" {
				cause += stalls(pressureFile(limit))
			}
			return cause
		case bytes.Contains(buf[:n], []byte(oomRecord)):
			if c, l := oomCause(string(buf[:n]), container, sandbox); c != "" {
				cause, limit = c, l
			}
		}
	}
	return cause
}

// pressureFile returns the file with the memory pressure of a cgroup, or of the node for ""; "" if there is none, as on
// cgroup v1.
func pressureFile(group string) string {
	if group == "" {
		return "/proc/pressure/memory"
	}
	dirs := DirsAt(group)
	if _, v1 := dirs["memory"]; v1 || dirs[unified] == "" {
		return ""
	}
	return filepath.Join(dirs[unified], "memory.pressure")
}

// stalls tells the memory pressure, in words that follow a cause; "" below 1%.
func stalls(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	share := pressure(text).Some.Avg10
	if share < 1 {
		return ""
	}
	return fmt.Sprintf("; memory pressure was %.0f%% (some avg10)", share)
}

// readLimit bounds how long the log is read: somebody may write it as fast.
const readLimit = time.Second

// oomRecord begins the text of a kill.
const oomRecord = "oom-kill:constraint="

// userPriority is the lowest priority of a record that a process wrote; the kernel's have a lower one.
const userPriority = 8

// maxName is the longest name of a process, TASK_COMM_LEN-1. It may contain anything.
const maxName = 15

// oomCause is OOMCause of one record of the kernel's log, with the cgroup whose limit was reached, "" for the node; no
// cause if the record is about something else.
func oomCause(record, container, sandbox string) (cause, limit string) {
	head, text, _ := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(head, ",")
	n, err := strconv.Atoi(priority)
	text, isKill := strings.CutPrefix(text, oomRecord)
	if err != nil || n >= userPriority || !isKill {
		return "", ""
	}
	text, _, _ = strings.Cut(text, "\n")
	// Bytes that are not printable ASCII, and backslashes, are \xNN.
	if plain, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`); err == nil {
		text = plain
	}
	constraint, _, _ := strings.Cut(text, ",")
	text = text[:max(0, strings.LastIndex(text, ",pid="))]
	const task = ",task="
	at := max(0, len(text)-len(task)-maxName)
	before, process, _ := strings.Cut(text[at:], task)
	limits, group := cutLast(text[:at]+before, ",task_memcg=")
	_, limit = cutLast(limits, ",oom_memcg=")
	id, subject := container, "the container"
	if !hasID(group, id) {
		id, subject = sandbox, "the sandbox of its pod"
	}
	if !hasID(group, id) {
		return "", ""
	}
	before, _, _ = strings.Cut(group, id)
	pod := path.Dir(before + "x")
	return fmt.Sprintf("the kernel killed process %q: %s", process, reached(constraint, limit, pod, id, subject)), limit
}

// hasID reports whether a cgroup, or one above it, has the id in its name.
func hasID(group, id string) bool { return id != "" && strings.Contains(group, id) }

// reached says which limit was reached, that of the cgroup limit. The subject is in the cgroup with the id, in pod.
func reached(constraint, limit, pod, id, subject string) string {
	_, name, within := strings.Cut(limit, id)
	_, below, _ := strings.Cut(name, "/")
	switch {
	case limit == "" && constraint == "CONSTRAINT_NONE":
		return "the node had no memory left"
	case limit == "":
		return "the part of the node's memory that it may use was full"
	case within && (below == "" || below == "container"): // the latter is crun's
		return subject + " reached its memory limit"
	case within:
		return "a cgroup in " + subject + " reached its memory limit"
	case limit == pod:
		return "its pod reached its memory limit"
	}
	return fmt.Sprintf("cgroup %.200s reached its memory limit", limit)
}

// cutLast cuts s around the last sep; after is "" without one.
func cutLast(s, sep string) (before, after string) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):]
	}
	return s, ""
}
