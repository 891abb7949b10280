package cgroups

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOOMCauseOfRecord(t *testing.T) {
	const (
		head = "6,1234,827275014,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0," +
			"oom_memcg="
		global  = "6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c,mems_allowed=0,global_oom"
		pod     = "/kubepods/burstable/pod7"
		slice   = "/kubepods.slice/kubepods-pod7.slice"
		task    = ",task=java,pid=18856,uid=0\n SUBSYSTEM=x\n"
		killed  = `the kernel killed process "java": `
		reached = " reached its memory limit"
	)
	for name, c := range map[string]struct{ record, want string }{
		"container": {head + pod + "/ctr,task_memcg=" + pod + "/ctr" + task, killed + "the container" + reached},
		"a cgroup in it": {head + pod + "/ctr/app,task_memcg=" + pod + "/ctr/app" + task,
			killed + "a cgroup in the container" + reached},
		"crun's": {head + pod + "/ctr/container,task_memcg=" + pod + "/ctr/container" + task,
			killed + "the container" + reached},
		"systemd": {head + slice + ",task_memcg=" + slice + "/crun-ctr.scope/container" + task,
			killed + "its pod" + reached},
		"sandbox": {head + pod + "/box,task_memcg=" + pod + "/box" + task, killed + "the sandbox of its pod" + reached},
		"pod":     {head + pod + ",task_memcg=" + pod + "/ctr" + task, killed + "its pod" + reached},
		"class": {head + "/kubepods/burstable,task_memcg=" + pod + "/ctr" + task,
			killed + "cgroup /kubepods/burstable" + reached},
		"node": {global + ",task_memcg=" + pod + "/ctr" + task, killed + "the node had no memory left"},
		"cpuset": {strings.Replace(global, "_NONE", "_CPUSET", 1) + ",task_memcg=" + pod + "/ctr" + task,
			killed + "the part of the node's memory that it may use was full"},
		"name like a field": {head + pod + "/ctr,task_memcg=" + pod + "/ctr,task=,task_memcg=/x,pid=2,uid=0\n",
			`the kernel killed process ",task_memcg=/x": the container` + reached},
		"name with other bytes": {head + pod + "/ctr,task_memcg=" + pod + `/ctr,task=na\xc3\xafve "w\x5c",pid=2,uid=0` + "\n",
			`the kernel killed process "naïve \"w\\\"": the container` + reached},
		"in another record": {"6,1,2,-;audit: name=\"/x;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/ctr," +
			"task_memcg=/ctr,task=lie,pid=1\"\n", ""},
		"name with commas": {head + pod + "/ctr,task_memcg=" + pod + "/ctr,task=a,pid=1,pid=2,uid=0\n",
			`the kernel killed process "a,pid=1": the container` + reached},
		"another container":    {head + pod + ",task_memcg=" + pod + "/other" + task, ""},
		"written by a process": {"1" + head + pod + "/ctr,task_memcg=" + pod + "/ctr" + task, ""},
		"another text":         {"6,1,2,-;something else, ctr\n", ""},
		"cut off":              {head + pod + "/ctr,task_memcg=" + pod + "/ctr", ""},
	} {
		if got, _ := oomCause(c.record, "ctr", "box"); got != c.want {
			t.Errorf("%s: cause = %q, want %q", name, got, c.want)
		}
	}
}

// TestStalls: pressure before a kill is told, if there was any.
func TestStalls(t *testing.T) {
	for some, want := range map[string]string{
		"0.99": "", "41.80": "; memory pressure was 42% (some avg10)",
	} {
		file := filepath.Join(t.TempDir(), "memory.pressure")
		write(t, file, "some avg10="+some+" avg60=0.00 avg300=0.00 total=1\nfull avg10=90.00 avg60=0 avg300=0 total=1\n")
		if got := stalls(file); got != want {
			t.Errorf("with %s%%: %q, want %q", some, got, want)
		}
	}
	if got := stalls(pressureFile("/not/there")); got != "" {
		t.Errorf("of a cgroup that is gone: %q", got)
	}
	if got := pressureFile(""); got != "/proc/pressure/memory" {
		t.Errorf("file of the node = %q", got)
	}
	record := "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/pod,task_memcg=/pod/ctr,task=x,pid=1,uid=0\n"
	if _, limit := oomCause(record, "ctr", "box"); limit != "/pod" {
		t.Errorf("cgroup with the limit = %q, want /pod", limit)
	}
}

// TestOOMCause has the kernel kill a process at the limit of a cgroup, and at that of the cgroup above.
func TestOOMCause(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes cgroups")
	}
	if log, err := os.Open("/dev/kmsg"); err != nil {
		t.Skip("the kernel's log cannot be read")
	} else {
		log.Close()
	}
	root, limit, swap := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if !isDir(root) {
		root, limit, swap = "/sys/fs/cgroup", "memory.max", "memory.swap.max"
	}
	mkdir := func(t *testing.T, dir string) {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { removeGroup(t, map[string]bool{dir: true}) })
	}
	for limited, want := range map[string]string{"kid": "the container reached", "": "its pod reached"} {
		t.Run("limit of "+limited, func(t *testing.T) {
			dir := filepath.Join(root, fmt.Sprintf("podd-oom-test-%d", os.Getpid()))
			id := fmt.Sprintf("podd-oom-kid-%d", os.Getpid())
			kid := filepath.Join(dir, id)
			mkdir(t, dir)
			_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory"), 0o644) // v2
			mkdir(t, kid)
			at := dir
			if limited != "" {
				at = kid
			}
			write(t, filepath.Join(at, limit), "20M")
			for _, value := range []string{"20M", "0"} { // v1: memory and swap, v2: swap; absent without accounting
				_ = os.WriteFile(filepath.Join(at, swap), []byte(value), 0o644)
			}
			// The kernel writes ten kills in five seconds, and other tests run.
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Second) {
				cmd := exec.Command("sh", "-c", `echo $$ >"$0"/cgroup.procs; exec dd if=/dev/zero of=/dev/null bs=64M count=1`, kid)
				if out, err := cmd.CombinedOutput(); err == nil {
					t.Fatalf("dd ended well: %s", out)
				}
				got := OOMCause(id, "")
				if strings.HasPrefix(got, `the kernel killed process "dd": `+want) {
					return
				}
				if got != "" || time.Now().After(end) {
					t.Fatalf("cause = %q, want %s", got, want)
				}
			}
		})
	}
}
