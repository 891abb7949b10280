package ocitest

import (
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
)

// hog is a command that the kernel kills for lack of memory in a container of 24 MiB.
const hog = "dd if=/dev/zero of=/proc/self/fd/2 bs=64M count=1 2>/dev/null"

// OOM tests which ends of a container are said to be for lack of memory or processes, on handlers of the host's kernel.
func OOM(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r, size := h.New(), int64(24<<20)
	start := func(id, script string) {
		t.Helper()
		s := h.Spec("sh", "-c", script)
		s.Linux.Resources = &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &size, Swap: &size}}
		create(t, r, oci.CreateRequest{ID: id, Spec: s})
		must(t, "start", r.Start(limit(t), id))
	}
	check := func(id string, code int32, oom bool, kills uint64) {
		t.Helper()
		exit, err := r.Wait(limit(t), id)
		if err != nil || exit.Code != code || exit.OOM != oom || exit.OOMKills != kills {
			t.Errorf("%s: exit = %+v, %v, want code %d, OOM %v, %d kills", id, exit, err, code, oom, kills)
		}
	}
	hang := "while :; do sleep 0.05; done"
	start("main", "exec "+hog)
	check("main", 137, true, 1)
	start("child", hog+"; exit $?")
	check("child", 137, true, 1)

	start("stopped", `trap "exit 143" TERM; `+hog+"; echo >/tmp/stopped; "+hang)
	waitFile(t, h, "stopped")
	must(t, "signal", r.Signal(limit(t), "stopped", syscall.SIGTERM))
	check("stopped", 143, false, 1)
	start("killed", hog+"; echo >/tmp/killed; "+hang)
	waitFile(t, h, "killed")
	must(t, "signal", r.Signal(limit(t), "killed", syscall.SIGKILL))
	check("killed", 137, false, 1)
	start("late", `trap "`+hog+`; exit 9" TERM; echo >/tmp/late; `+hang)
	waitFile(t, h, "late")
	must(t, "signal", r.Signal(limit(t), "late", syscall.SIGTERM))
	check("late", 9, true, 1)

	size = 48 << 20 // the runtime's own process must fit, too: else the kernel may kill the container for an exec
	start("probed", "while [ ! -e /tmp/probed ]; do sleep 0.05; done; exit 9")
	result, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "probed", Process: process(h, "sh", "-c", "exec "+hog)})
	if err != nil || result.Code != 137 {
		t.Errorf("exec that is killed = %+v, %v, want code 137", result, err)
	}
	_, err = r.ExecSync(limit(t), oci.ExecRequest{ID: "probed", Process: process(h, "sh", "-c", "echo >/tmp/probed")})
	must(t, "exec", err)
	check("probed", 9, false, 1)

	s := h.Spec("sh", "-c", "i=0; while [ $i -lt 90 ]; do sleep 9 & i=$((i+1)); done")
	s.Linux.Resources = &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: new(int64(40))}} // the runtime has threads
	create(t, r, oci.CreateRequest{ID: "forks", Spec: s})
	must(t, "start", r.Start(limit(t), "forks"))
	if exit, err := r.Wait(limit(t), "forks"); err != nil || exit.Code == 0 || exit.ForksRefused == 0 {
		t.Errorf("forks beyond the limit: exit = %+v, %v, want an error and a number of refused ones", exit, err)
	}
}
