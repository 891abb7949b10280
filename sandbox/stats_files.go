package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	// maxLooks bounds how many open files of a container are looked at, to count sockets.
	maxLooks = 10_000
	// maxLookedProcesses bounds how many processes' files are counted.
	maxLookedProcesses = 2_000
)

// OpenFiles is what the processes of a control group have open.
type OpenFiles struct {
	// Files and Sockets are nil when there are too many to count them.
	Files, Sockets *uint64
	// MaxOpenFiles is the soft limit of the first process; nil when it is not known.
	MaxOpenFiles *uint64
}

// openFiles counts. Processes that end meanwhile count nothing. first is 0 for a pod.
func openFiles(first int, pids []int) OpenFiles {
	var o OpenFiles
	if first != 0 {
		o.MaxOpenFiles = maxOpenFiles(first)
	}
	if len(pids) > maxLookedProcesses {
		return o
	}
	var files, sockets uint64
	for _, pid := range pids {
		n, s := countFiles(fmt.Sprintf("/proc/%d/fd", pid), maxLooks-int(min(files, maxLooks)))
		files, sockets = files+n, sockets+s
	}
	o.Files = &files
	if files <= maxLooks {
		o.Sockets = &sockets
	}
	return o
}

// countFiles counts a directory's links, and those of the first looks of them that lead to sockets.
func countFiles(dir string, looks int) (files, sockets uint64) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		if looks--; looks < 0 {
			break
		}
		if to, err := os.Readlink(dir + "/" + name); err == nil && strings.HasPrefix(to, "socket:") {
			sockets++
		}
	}
	return uint64(len(names)), sockets
}

// maxOpenFiles reads "Max open files  1024  524288  files" of /proc/<pid>/limits. A limit that is "unlimited" is not
// known as a number.
func maxOpenFiles(pid int) *uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if fields := bytes.Fields(rest); ok && len(fields) > 0 {
			if n, err := strconv.ParseUint(string(fields[0]), 10, 64); err == nil {
				return &n
			}
		}
	}
	return nil
}

// setOOMScoreAdj writes a process's oom_score_adj; one that has ended is no error.
func setOOMScoreAdj(pid, value int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), strconv.AppendInt(nil, int64(value), 10), 0)
	if gone(err) {
		return nil
	}
	return err
}

// oomScoreAdj reads a process's oom_score_adj.
func oomScoreAdj(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}
