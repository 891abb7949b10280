package integration

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/podd-project/podd/test/daemon"
)

// TestContainersInheritNothing: an administrator may limit podd itself. Its pods get nothing of it, on any handler. It
// runs alone: tests of the same processor leave nothing to a podd with nice 19.
func TestContainersInheritNothing(t *testing.T) {
	k := startWith(t, daemon.Options{
		Set: runcShim(),
		Under: []string{
			"sh", "-c", `echo 0x7f >/proc/self/coredump_filter; exec "$@"`, "sh", "taskset", "-c", "0", "nice", "-n", "19",
			"setarch", "-R", "env", "--block-signal=USR2", "--ignore-signal=TTOU",
		},
	})
	if podd := attributes(k.Pid()); podd["nice"] != "19" || podd["USR2 blocked"] != "true" || podd["CPUs"] != "0" {
		t.Errorf("podd has %v, want it changed", podd)
	}
	want := attributes(1)
	want["nice"], want["CPUs"] = "0", attributes(os.Getpid())["CPUs"]
	for _, handler := range []string{"runc", "crun", "runc-shim", "gvisor", "gvisor-shim", "vm"} {
		t.Run(handler, func(t *testing.T) {
			k := k.withT(t)
			cfg := k.podConfig()
			pod := k.runPod(cfg, handler)
			id, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
			k.exec(id, "setsid sleep 999 >/dev/null 2>&1 </dev/null &")
			pids := k.pidsOfPods()
			if len(pids) == 0 {
				t.Fatal("no process is in a cgroup of the pod")
			}
			for _, pid := range pids {
				for what, got := range attributes(pid) {
					if got == want[what] || ownKernel(handler) && (what == "USR2 blocked" || what == "nice" && got != "19") {
						continue // kernels choose that for their threads
					}
					name, _ := os.ReadFile(fmt.Sprintf("/proc/%s/comm", pid))
					t.Errorf("%s has %s %s, want %s", name, what, got, want[what])
				}
			}
			k.stopPod(pod)
			k.removePod(pod)
		})
	}
}

// ownKernel reports whether the handler's sandboxes have a kernel.
func ownKernel(handler string) bool { return handler == "vm" || strings.HasPrefix(handler, "gvisor") }

// attributes describes what a process has inherited; nothing if it is gone.
func attributes(pid any) map[string]string {
	read := func(file string) string {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%v/%s", pid, file))
		return strings.TrimSpace(string(b))
	}
	stat, status := read("stat"), map[string]string{}
	for line := range strings.Lines(read("status")) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	if stat == "" || status["SigBlk"] == "" {
		return nil
	}
	has := func(mask string, sig syscall.Signal) string {
		bits, _ := strconv.ParseUint(mask, 16, 64)
		return strconv.FormatBool(bits&(1<<(sig-1)) != 0)
	}
	return map[string]string{
		"nice": strings.Fields(stat[strings.LastIndexByte(stat, ')'):])[17], "core filter": read("coredump_filter"),
		"CPUs": status["Cpus_allowed_list"], "USR2 blocked": has(status["SigBlk"], syscall.SIGUSR2),
		"TTOU ignored": has(status["SigIgn"], syscall.SIGTTOU),
	}
}

// pidsOfPods lists the processes in cgroups of pods.
func (k *kubelet) pidsOfPods() (pids []string) {
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/pids"); err == nil {
		root += "/pids"
	}
	_ = filepath.WalkDir(filepath.Join(root, k.CgroupParent), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			b, _ := os.ReadFile(path)
			pids = append(pids, strings.Fields(string(b))...)
		}
		return nil
	})
	slices.Sort(pids)
	return slices.Compact(pids)
}
