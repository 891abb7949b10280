package leak

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// process has the fields that identify a process and its owner.
type process struct {
	pid          int
	start        string // field 22 of /proc/<pid>/stat: pid and start identify a process
	name         string // of the executable
	cmdline      string
	cgroup       string
	netns        string // empty if it is this process's
	ownNamespace bool   // another PID or mount namespace than this process's
}

func (p process) String() string {
	return fmt.Sprintf("pid %d %s: %s (cgroup %s)", p.pid, p.name, p.cmdline, p.cgroup)
}

// monitors are podd and the programs that it starts outside of containers.
var monitors = []string{"podd", "conmon", "runc", "crun", "runsc", "pause", "stdio", "initproxy",
	"containerd-shim-runc-v2", "containerd-shim-runsc-v1"}

// processes lists the processes of containers, which have namespaces of their own, and the monitors.
func processes(o Options) (map[string]string, error) {
	procs, err := readProcesses()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, p := range procs {
		if p.pid != o.Daemon && (p.ownNamespace && !fleeting(p.cgroup) || slices.Contains(monitors, p.name)) {
			found[fmt.Sprintf("%d@%s", p.pid, p.start)] = p.String()
		}
	}
	return found, nil
}

// readProcesses lists all processes, except those that end meanwhile.
func readProcesses() ([]process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	self, err := readNamespaces("/proc/self")
	if err != nil {
		return nil, err
	}
	var procs []process
	for _, dir := range dirs {
		p, err := readProcess(dir, self)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		procs = append(procs, p)
	}
	return procs, nil
}

func readProcess(dir string, self map[string]string) (process, error) {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return process{}, err
	}
	p := process{pid: pid}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, gone(err)
	}
	// The name is in parentheses and may contain any character; the state is field 3.
	tail, ok := afterLast(string(stat), ")")
	fields := strings.Fields(tail)
	if !ok || len(fields) < 20 {
		return process{}, fmt.Errorf("%s/stat: %q, want a name in parentheses and 20 fields", dir, stat)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return process{}, os.ErrProcessDone // dead, not yet reaped
	}
	p.start = fields[19]
	exe, err := os.Readlink(dir + "/exe")
	if err != nil {
		return process{}, gone(err) // or a kernel thread, some of which have namespaces of their own
	}
	p.name = strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	cmdline, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return process{}, gone(err)
	}
	p.cmdline = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
	if p.cgroup, err = readCgroup(dir + "/cgroup"); err != nil {
		return process{}, gone(err)
	}
	ns, err := readNamespaces(dir)
	if err != nil {
		return process{}, gone(err)
	}
	p.ownNamespace = ns["pid"] != self["pid"] || ns["mnt"] != self["mnt"]
	if ns["net"] != self["net"] {
		p.netns = ns["net"]
	}
	return p, nil
}

// readNamespaces returns the namespaces' inode names. It fails for kernel threads.
func readNamespaces(dir string) (map[string]string, error) {
	ns := map[string]string{}
	for _, kind := range []string{"pid", "mnt", "net"} {
		link, err := os.Readlink(dir + "/ns/" + kind)
		if err != nil {
			return nil, err
		}
		ns[kind] = link
	}
	return ns, nil
}

// readCgroup returns the longest of the process's cgroup paths in all hierarchies.
func readCgroup(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	longest := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// hierarchy:controllers:path
		if parts := strings.SplitN(lines.Text(), ":", 3); len(parts) == 3 && len(parts[2]) > len(longest) {
			longest = parts[2]
		}
	}
	return longest, lines.Err()
}

// gone wraps the errors of reading /proc of a process that ends meanwhile.
func gone(err error) error {
	return fmt.Errorf("%w: %w", os.ErrProcessDone, err)
}

// afterLast returns what follows the last sep.
func afterLast(s, sep string) (after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", false
	}
	return s[i+len(sep):], true
}
