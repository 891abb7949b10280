package runc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/test/sample"
)

func harness(name string) ocitest.NewHarness {
	return func(t *testing.T) *ocitest.Harness { return &ocitest.Real(t, name).Harness }
}

func TestRunc(t *testing.T) { ocitest.Suite(t, harness("runc")) }
func TestCrun(t *testing.T) { ocitest.SomeOfSuite(t, harness("crun")) }

func TestRunsc(t *testing.T) {
	ocitest.SomeOfSuite(t, sandboxed)
}

func sandboxed(t *testing.T) *ocitest.Harness {
	m, _ := ocitest.Sandboxed(t, "runsc")
	return &m.Harness
}

func TestHalfDead(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.HalfDead(t, harness(name)) })
	}
}

// TestSeccompKillsThread: crun's init has one thread, and no part of it is left.
func TestSeccompKillsThread(t *testing.T) { ocitest.KilledThread(t, harness("runc")) }

func TestSlowTerminal(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.SlowTerminal(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.SlowTerminal(t, sandboxed) })
}

func TestHangUp(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.HangUp(t, harness(name), "", ocitest.Stubborn) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.HangUp(t, sandboxed, "", ocitest.Stubborn) })
}

func TestEarlyTimeout(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.EarlyTimeout(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.EarlyTimeout(t, sandboxed) })
}

func TestUpdateRefused(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.UpdateRefused(t, harness(name)) })
	}
}

func TestReasonOOM(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.OOM(t, harness(name)) })
	}
}

func TestRealTimeSignal(t *testing.T) { ocitest.RealTimeSignal(t, sandboxed) }

// TestSandboxOOM: the kernel kills the sandbox, whose cgroup counts it.
func TestSandboxOOM(t *testing.T) {
	m, _ := ocitest.Sandboxed(t, "runsc")
	limitMemory(t, m.Cgroup, 150<<20)
	r := m.New()
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("dd", "if=/dev/zero", "of=/proc/self/fd/2", "bs=400M", "count=1")})
	if exit, err := r.Wait(limit(t), "c"); err != nil || exit.Code != 137 || !exit.OOM || exit.OOMKills != 1 {
		t.Errorf("exit = %+v, %v, want code 137, OOM, one kill", exit, err)
	}
}

// limitMemory sets the limit of a cgroup, which it makes if necessary, and one CPU.
func limitMemory(t *testing.T, cgroup string, bytes int64) {
	t.Helper()
	for _, controller := range []string{"memory", "cpu"} {
		if _, err := os.Stat("/sys/fs/cgroup/" + controller); err != nil {
			controller = "" // cgroup v2
		}
		must(t, "make cgroup", os.MkdirAll(filepath.Join("/sys/fs/cgroup", controller, cgroup), 0o755))
	}
	tree, err := cgroups.Find()
	must(t, "cgroups", err)
	group, err := tree.At(cgroup)
	must(t, "cgroup", err)
	defer group.Close()
	must(t, "limit", group.Update(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &bytes},
		CPU:    &specs.LinuxCPU{Quota: new(int64(100000)), Period: new(uint64(100000))},
	}))
}

// TestSandboxSize: containers see the limits of their pod, whose cgroup enforces them alone.
func TestSandboxSize(t *testing.T) {
	m, pod := ocitest.SandboxedIn(t, "runsc", func(cgroup string) { limitMemory(t, cgroup, 512<<20) })
	r := m.New()
	start(t, r, oci.CreateRequest{ID: "c", Spec: m.Spec("sleep", "1000")})
	p := m.Spec("grep", "MemTotal", "/proc/meminfo").Process
	got, err := r.ExecSync(limit(t), oci.ExecRequest{ID: "c", Process: p})
	must(t, "exec", err)
	if f := strings.Fields(string(got.Stdout)); len(f) != 3 || f[1] != "524288" {
		t.Errorf("memory = %q, want 524288 kB", got.Stdout)
	}
	config, err := os.ReadFile(filepath.Join(m.Config.RunDir, pod, "config.json")) // runsc rounds up to two processors
	if err != nil || !strings.Contains(string(config), `"quota":100000,"period":100000`) {
		t.Errorf("config.json of the infra container = %s, %v, want the quota of the pod", config, err)
	}
	state, err := r.State(limit(t), pod)
	must(t, "state", err)
	tree, err := cgroups.Find()
	must(t, "cgroups", err)
	group, err := tree.Of(state.Process.Pid, filepath.Base(cgroups.DirsOf(state.Process.Pid)["memory"]))
	must(t, "cgroup of the sandbox", err)
	defer group.Close()
	if l, err := group.Limits(); err != nil || l.Memory != cgroups.Unlimited || l.CPUQuota != -1 {
		t.Errorf("limits of the infra container = %+v, %v, want none: those of the pod hold", l, err)
	}
}

func TestTerminalInput(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.TerminalInput(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.TerminalInput(t, sandboxed) })
}

func TestLongInput(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.LongInput(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.LongInput(t, sandboxed) })
}

func TestLateOutput(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.LateOutput(t, harness(name)) })
	}
	t.Run("runsc", func(t *testing.T) { ocitest.LateOutput(t, sandboxed) })
}

func TestKillFrozen(t *testing.T) {
	for _, name := range sample.Some(t, "runc", "crun") {
		t.Run(name, func(t *testing.T) { ocitest.KillFrozen(t, harness(name)) })
	}
}
