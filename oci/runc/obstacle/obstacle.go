// Package obstacle finds what prevents CRIU from saving a running container: open files of its processes, and objects
// of System V of its pod. It freezes and changes nothing, so obstacles may be gone, or appear, afterwards. Package runc
// calls it.
package obstacle

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxProcesses and maxDescriptors bound the number of those examined in a container.
	maxProcesses   = 10_000
	maxDescriptors = 100_000
	// maxWatches bounds the bytes that are read from the lists of watches of a container: a watch has about 100.
	maxWatches = 64 << 20
	// maxName bounds a name of the container in a text, in bytes.
	maxName = 50
)

// saved are the files without a name that CRIU can save (criu/files.c), as links in /proc/<pid>/fd have them.
var saved = map[string]bool{
	"[eventfd]": true, "[eventpoll]": true, "[signalfd]": true, "[timerfd]": true, "[pidfd]": true, "bpf-map": true,
	inotify: true, "[fanotify]": true,
}

const inotify = "inotify"

// Find returns the obstacles in the container whose first process is init, a text for each kind of thing, which
// names one process that has it. It looks at no more when ctx ends.
func Find(ctx context.Context, init int) (texts []string) {
	s := search{
		ctx: ctx, found: map[string]string{}, sockets: map[uint32]int{}, left: maxDescriptors, watches: maxWatches,
	}
	if st, err := os.Stat(fmt.Sprintf("/proc/%d/root/.", init)); err == nil {
		s.root = device(st)
	}
	for _, pid := range tree(init) {
		s.process(pid)
	}
	s.checkSockets(init)
	for _, kind := range []string{openFile, watch, socket, tooMany} {
		if text, ok := s.found[kind]; ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// The kinds of things.
const (
	openFile = "file"
	watch    = "watch"
	socket   = "socket"
	tooMany  = "descriptors"
)

// search is one call of Find.
type search struct {
	ctx     context.Context
	found   map[string]string // text by kind
	sockets map[uint32]int    // process by inode
	root    string            // device of the root filesystem, as in /proc/<pid>/fdinfo
	left    int               // descriptors
	watches int64             // bytes
}

func (s *search) add(kind string, pid int, format string, args ...any) {
	if _, ok := s.found[kind]; !ok {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		s.found[kind] = fmt.Sprintf("process %d (%.*q) has ", pid, maxName, strings.TrimSpace(string(name))) +
			fmt.Sprintf(format, args...)
	}
}

// process looks at the descriptors of a process. One that has exited has none.
func (s *search) process(pid int) {
	dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(s.left + 1)
	if s.left -= len(names); s.left < 0 {
		s.left = 0
		s.add(tooMany, pid, "so many open files that not all of the container were checked")
		return
	}
	for _, name := range names {
		if s.ctx.Err() != nil {
			return
		}
		link, _ := os.Readlink(filepath.Join(dir.Name(), name))
		kind, what, _ := strings.Cut(link, ":")
		switch {
		case kind == "socket":
			inode, _ := strconv.ParseUint(strings.Trim(what, "[]"), 10, 32)
			s.sockets[uint32(inode)] = pid
		case kind == "anon_inode" && !saved[what]:
			s.add(openFile, pid, "a file of the kind %.*q open, which CRIU cannot save", maxName, what)
		case kind == "anon_inode" && what == inotify && s.watchesRoot(pid, name):
			s.add(watch, pid, "a watch (inotify) of a file in the root filesystem, which is an overlay: "+
				"CRIU cannot save it, unless the file is in a volume")
		}
	}
}

// watchesRoot reports whether an inotify descriptor has a watch in the root filesystem (proc(5), fdinfo), if none was
// found before.
func (s *search) watchesRoot(pid int, fd string) bool {
	if _, ok := s.found[watch]; ok {
		return false
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return false
	}
	defer f.Close()
	text := &io.LimitedReader{R: f, N: s.watches}
	defer func() { s.watches = text.N }()
	for lines := bufio.NewScanner(text); s.ctx.Err() == nil && lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "inotify ") && strings.Contains(line, " sdev:"+s.root+" ") {
			return true
		}
	}
	if text.N == 0 {
		s.add(tooMany, pid, "so many watches (inotify) that not all of the container were checked")
	}
	return false
}

// device returns the device of a directory as the kernel prints it in fdinfo: 20 bits for the minor number, in hex.
func device(info os.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(uint64(unix.Major(st.Dev))<<20|uint64(unix.Minor(st.Dev)), 16)
}

// tree returns a process and its descendants, which CRIU saves. Those of commands that run by exec are none.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids) && len(pids) < maxProcesses; i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, path := range lists {
			text, _ := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(text)) {
				if child, err := strconv.Atoi(field); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}
