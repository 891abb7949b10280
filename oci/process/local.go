package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Local is a process that podd, or one before it, may have started: root's, in podd's own PID namespace. Others are
// never taken for one, whatever they call themselves.
//
// It reads only sources that a process cannot make hang: neither its memory nor a filesystem that it uses. Reading the
// command line can hang: the memory may be a file of a FUSE server.
type Local struct {
	Process
	// Program is the path of its executable, also if that was replaced since.
	Program string
	// Dir is its working directory, with " (deleted)" behind it if that is gone. Another mount namespace can have
	// another directory at the same path.
	Dir string
	// SharesMounts is true if it is in podd's mount namespace.
	SharesMounts bool
}

// Locals returns all local processes but podd itself, by one scan of /proc.
func Locals() (found []Local, err error) {
	list, err := pids()
	if err != nil {
		return nil, err
	}
	for _, pid := range list {
		if pid == os.Getpid() {
			continue
		}
		if p, ok := FindLocal(pid); ok {
			found = append(found, p)
		}
	}
	return found, nil
}

// FindLocal returns the local process with the pid; false if there is none.
func FindLocal(pid int) (Local, bool) {
	p, err := Identify(pid) // first: a process that reuses the pid afterwards has another start time
	if err != nil {
		return Local{}, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if !isRoot(dir) || !sameNamespace(dir, "pid") {
		return Local{}, false
	}
	program, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil {
		return Local{}, false // a thread of the kernel, or a process that has just exited
	}
	cwd, err := os.Readlink(filepath.Join(dir, "cwd"))
	if err != nil {
		return Local{}, false
	}
	return Local{
		Process: p, Program: strings.TrimSuffix(program, " (deleted)"), Dir: cwd, SharesMounts: sameNamespace(dir, "mnt"),
	}, true
}

// isRoot reports whether all uids of the process are 0. The owner of the directory in /proc does not tell it: that is
// root also for processes of others that cannot be dumped.
func isRoot(dir string) bool {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return false
	}
	_, line, _ := bytes.Cut(status, []byte("\nUid:")) // the name, in the line before, cannot contain a line break
	line, _, _ = bytes.Cut(line, []byte("\n"))
	uids := bytes.Fields(line)
	for _, uid := range uids {
		if string(uid) != "0" {
			return false
		}
	}
	return len(uids) == 4
}

// sameNamespace reports whether the process is in podd's namespace of the kind.
func sameNamespace(dir, kind string) bool {
	own, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return false
	}
	other, err := os.Readlink(filepath.Join(dir, "ns", kind))
	return err == nil && other == own
}
