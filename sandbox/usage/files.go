package usage

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxLooks bounds how many open files of a container are read, to count sockets.
	maxLooks = 10_000
	// maxCountedProcesses bounds how many processes' files are counted.
	maxCountedProcesses = 2_000
	// fileBatch is how many names of open files are in memory at a time.
	fileBatch = 1000
)

// OpenFiles counts the open files of the processes of a cgroup.
type OpenFiles struct {
	// Files and Sockets are nil when there are too many to count them.
	Files, Sockets *uint64
	// MaxOpenFiles is the soft limit of the first process; nil when it is not known.
	MaxOpenFiles *uint64
}

// openFiles counts the files of pids. Processes that exit concurrently count 0. first is 0 for a pod.
func openFiles(first int, pids []int) OpenFiles {
	var o OpenFiles
	if first != 0 {
		o.MaxOpenFiles = maxOpenFiles(first)
	}
	if len(pids) > maxCountedProcesses {
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

// countFiles counts the links in dir, and how many of the first looks of them are sockets.
func countFiles(dir string, looks int) (files, sockets uint64) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	known := knownFiles(d)
	for {
		names, err := d.Readdirnames(fileBatch)
		for _, name := range names {
			if looks--; looks < 0 {
				break
			}
			if to, err := os.Readlink(dir + "/" + name); err == nil && strings.HasPrefix(to, "socket:") {
				sockets++
			}
		}
		files += uint64(len(names))
		if err != nil { // io.EOF, or the process exited
			return files, sockets
		}
		if looks < 0 && known > 0 {
			return known, sockets
		}
	}
}

// knownFiles returns the size of /proc/<pid>/fd, which is the number of open files since Linux 6.2; 0 before, and for
// other directories.
func knownFiles(d *os.File) uint64 {
	var fs unix.Statfs_t
	info, err := d.Stat()
	if err != nil || unix.Fstatfs(int(d.Fd()), &fs) != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		return 0
	}
	return uint64(info.Size())
}

// maxOpenFiles reads "Max open files  1024  524288  files" of /proc/<pid>/limits. It returns nil for
// "unlimited".
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
