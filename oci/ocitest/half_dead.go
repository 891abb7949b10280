package ocitest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	osprocess "github.com/podd-project/podd/oci/process"
)

// halfDeadName is the name of the program that HalfDead runs.
const halfDeadName = "halfdead"

// HalfDead runs tests with a process whose main thread has ended while others run, on handlers of the host's kernel.
func HalfDead(t *testing.T, newHarness NewHarness) {
	program := filepath.Join(t.TempDir(), halfDeadName)
	build := exec.Command("go", "build", "-o", program, "github.com/podd-project/podd/oci/ocitest/halfdead")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	for name, test := range map[string]func(*testing.T, *Harness){
		"FirstProcess": testHalfDeadFirst, "Leftover": testHalfDeadLeftover, "ExecTimeout": testHalfDeadExec,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			must(t, "link", os.Link(program, filepath.Join(h.Spec().Root.Path, "bin", halfDeadName)))
			test(t, h)
		})
	}
}

// halfDead waits until the container's program is half dead, and returns its process.
func halfDead(t *testing.T, s *specs.Spec) (found oci.Process) {
	t.Helper()
	must(t, "wait for a half dead process", osprocess.Poll(limit(t), func() bool {
		for _, pid := range members(s) {
			stat, _ := os.ReadFile("/proc/" + pid + "/stat")
			if strings.Contains(string(stat), "("+halfDeadName+") Z ") {
				found.Pid, _ = strconv.Atoi(pid)
			}
		}
		return found.Pid != 0
	}))
	found, err := osprocess.Identify(found.Pid)
	must(t, "identify", err)
	return found
}

// waitFile waits for the file in /tmp of the containers.
func waitFile(t *testing.T, h *Harness, name string) {
	t.Helper()
	file := filepath.Join(h.Spec().Root.Path, "tmp", name)
	must(t, "wait for "+file, osprocess.Poll(limit(t), func() bool { _, err := os.Stat(file); return err == nil }))
}

// members lists the processes in the container's cgroup.
func members(s *specs.Spec) []string {
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		b, err := os.ReadFile(filepath.Join(root, s.Linux.CgroupsPath, "cgroup.procs"))
		if err == nil {
			return strings.Fields(string(b))
		}
	}
	return nil
}

func testHalfDeadFirst(t *testing.T, h *Harness) {
	r, s, path := h.New(), h.Spec(halfDeadName), filepath.Join(h.LogDir, "0.log")
	create(t, r, oci.CreateRequest{ID: "half", Spec: s, Log: LogAt(path)})
	must(t, "start", r.Start(limit(t), "half"))
	halfDead(t, s)
	wantState(t, r, "half", oci.Running)
	must(t, "move", os.Rename(path, path+".old"))
	must(t, "reopen log", r.ReopenLog(limit(t), "half"))
	attached, cancel := context.WithTimeout(limit(t), 100*time.Millisecond)
	defer cancel()
	if err := r.Attach(attached, "half", oci.Streams{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("attach = %v, want it to last until %v", err, context.DeadlineExceeded)
	}
	must(t, "kill", r.Signal(limit(t), "half", syscall.SIGKILL))
	if exit, err := r.Wait(limit(t), "half"); err != nil || exit.Code != 137 {
		t.Errorf("exit = %+v, %v, want code 137", exit, err)
	}
}

func testHalfDeadLeftover(t *testing.T, h *Harness) {
	r := h.New()
	infra := run(t, h, r, "infra", "sleep", "1000")
	pod := fmt.Sprintf("/proc/%d/ns/pid", infra.Pid)
	for name, path := range map[string]string{"pod": pod, "node": "", "deleted": pod} {
		s := h.Spec("sh", "-c", "setsid "+halfDeadName+" & sleep 1000")
		if s.Linux.Namespaces[1].Path = path; path == "" {
			s.Linux.Namespaces = slices.Delete(s.Linux.Namespaces, 1, 2)
		}
		create(t, r, oci.CreateRequest{ID: name, Spec: s})
		must(t, "start", r.Start(limit(t), name))
		p := halfDead(t, s)
		begin := time.Now()
		if name == "deleted" { // while it runs
			must(t, "delete", r.Delete(limit(t), name))
		} else {
			must(t, "kill", r.Signal(limit(t), name, syscall.SIGKILL))
			_, err := r.Wait(limit(t), name)
			must(t, "wait", err)
		}
		ctx, cancel := context.WithTimeout(limit(t), 5*time.Second-time.Since(begin))
		if err := p.Wait(ctx); err != nil {
			t.Errorf("%s: wait for a half dead process of an ended container = %v, want it killed at once", name, err)
		}
		cancel()
	}
}

func testHalfDeadExec(t *testing.T, h *Harness) {
	r, s := h.New(), h.Spec("sleep", "1000")
	create(t, r, oci.CreateRequest{ID: "exec", Spec: s})
	must(t, "start", r.Start(limit(t), "exec"))
	ctx, cancel := context.WithCancelCause(limit(t))
	enough, found := errors.New("enough"), make(chan oci.Process, 1)
	go func() {
		found <- halfDead(t, s)
		cancel(enough)
	}()
	_, err := r.ExecSync(ctx, oci.ExecRequest{
		ID: "exec", Process: h.Spec("sh", "-c", "setsid "+halfDeadName+" & sleep 1000").Process, Timeout: 10 * time.Minute,
	})
	if !errors.Is(err, enough) {
		t.Fatalf("exec = %v, want %v", err, enough)
	}
	ctx, stop := context.WithTimeout(limit(t), time.Second)
	defer stop()
	if p := <-found; p.Wait(ctx) != nil {
		t.Error("a half dead process outlives the exec that timed out, want it killed")
	}
}

// KilledThread wants the creation of a container to fail soon whose seccomp profile kills a thread of runc's init.
func KilledThread(t *testing.T, newHarness NewHarness) {
	h := newHarness(t)
	r, s := h.New(), h.Spec("true")
	s.Linux.Seccomp = &specs.LinuxSeccomp{DefaultAction: specs.ActKill}
	begin := time.Now()
	_, err := r.Create(limit(t), oci.CreateRequest{ID: "c", Spec: s})
	if err == nil || !strings.Contains(err.Error(), "seccomp") || time.Since(begin) > 20*time.Second {
		t.Errorf("create = %v after %s, want an error that names seccomp, soon", err, time.Since(begin))
	}
	must(t, "delete", r.Delete(limit(t), "c"))
}
