package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is the proportional set size (PSS) of a server, in bytes.
type usage struct {
	daemon uint64
	// others is all other processes of the server except the workload: monitors, shims, pause processes.
	others uint64
}

// idleTime is how long a server does nothing before its memory is measured as that of an idle one.
const idleTime = 20 * time.Second

// workload is the program in the containers. Its memory is not counted.
const workload = "sleep"

// memory returns the memory of the daemon, and of the processes with the server's directory in their command line or
// cgroup.
func (s *server) memory() (usage, error) {
	var u usage
	daemon := strconv.Itoa(s.process.Pid())
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return u, err
	}
	for _, dir := range procs {
		if filepath.Base(dir) != daemon && !s.owns(dir) {
			continue
		}
		pss, err := pss(dir)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
			continue // ended meanwhile
		}
		if err != nil {
			return u, err
		}
		if filepath.Base(dir) == daemon {
			u.daemon = pss
		} else {
			u.others += pss
		}
	}
	return u, nil
}

func (s *server) owns(proc string) bool {
	comm, err := os.ReadFile(proc + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) == workload {
		return false
	}
	command, _ := os.ReadFile(proc + "/cmdline") // empty if the process has ended
	cgroup, _ := os.ReadFile(proc + "/cgroup")
	return bytes.Contains(command, []byte(s.mark+"/")) || bytes.Contains(cgroup, []byte(s.kubelet.cgroupParent+"/"))
}

func pss(proc string) (uint64, error) {
	f, err := os.Open(proc + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "Pss:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, nil // a zombie has no memory
}

// clockTick is USER_HZ, which is 100 on every Linux.
const clockTick = 100

// cpuSeconds returns the CPU time of a process without its children; 0 if it cannot be read.
func cpuSeconds(pid int) float64 {
	const own = 11 // index after the command's name
	return cpuFields(pid, own)
}

// treeCPUSeconds returns the CPU time of a process and of its children that have ended.
func treeCPUSeconds(pid int) float64 {
	const own, children = 11, 13
	return cpuFields(pid, own) + cpuFields(pid, children)
}

// cpuFields returns the sum of two fields of /proc/PID/stat, for user and system, in seconds.
func cpuFields(pid, first int) float64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(rest)
	if len(fields) < first+2 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[first], 64)
	system, _ := strconv.ParseFloat(fields[first+1], 64)
	return (user + system) / clockTick
}
