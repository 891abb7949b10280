package shim_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/process"
	"github.com/podd-project/podd/oci/shim"
	"github.com/podd-project/podd/test/sample"
)

// machine is a handler of type shim on the real machine.
type machine struct {
	*ocitest.Machine
	cfg shim.Config
}

// newMachine makes a handler with the shim and the runtime of these names, in directories of its own.
func newMachine(t testing.TB, shimName, runtimeName string) *machine {
	t.Helper()
	m := &machine{Machine: ocitest.Real(t, runtimeName)}
	dir := filepath.Dir(m.Config.RunDir)
	stdioProgram, err := shim.InstallStdio(filepath.Join(dir, "lib"))
	if err != nil {
		t.Fatal(err)
	}
	m.cfg = shim.Config{
		Name: "shim", Path: ocitest.Binary(t, shimName), Runtime: ocitest.Binary(t, runtimeName), Stdio: stdioProgram,
		Root: filepath.Join(dir, "h"), RunDir: m.Config.RunDir, Log: logrus.New(),
	}
	m.New = func() ocitest.Runtime { return m.open(t) }
	return m
}

// open returns the handler as a daemon that has just started makes it.
func (m *machine) open(t testing.TB) *shim.Runtime {
	r := shim.New(m.cfg)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

func TestRuncShim(t *testing.T) {
	ocitest.Suite(t, func(t *testing.T) *ocitest.Harness {
		return &newMachine(t, "containerd-shim-runc-v2", "runc").Harness
	})
}

func TestHalfDead(t *testing.T) {
	ocitest.HalfDead(t, func(t *testing.T) *ocitest.Harness { return &runcMachine(t).Harness })
}

func TestSeccompKillsThread(t *testing.T) {
	ocitest.KilledThread(t, func(t *testing.T) *ocitest.Harness { return &runcMachine(t).Harness })
}

// some returns the harnesses of the shim of runc, and of the others that this commit takes for the test.
func some(t *testing.T) map[string]ocitest.NewHarness {
	all := harnesses()
	taken := sample.Some(t, "runc", "gvisor", "vm")
	maps.DeleteFunc(all, func(name string, _ ocitest.NewHarness) bool { return !slices.Contains(taken, name) })
	return all
}

// harnesses are those of all kinds of shims.
func harnesses() map[string]ocitest.NewHarness {
	return map[string]ocitest.NewHarness{
		"runc":   func(t *testing.T) *ocitest.Harness { return &runcMachine(t).Harness },
		"gvisor": func(t *testing.T) *ocitest.Harness { return &gvisorMachine(t).inPod(t).Harness },
		"vm":     func(t *testing.T) *ocitest.Harness { return &vmMachine(t).inPod(t).Harness },
	}
}

func TestSlowTerminal(t *testing.T) {
	for name, newHarness := range some(t) {
		t.Run(name, func(t *testing.T) { ocitest.SlowTerminal(t, newHarness) })
	}
}

// TestHangUp: the agent of a machine kills a command that SIGHUP does not end with all that it has started.
func TestHangUp(t *testing.T) {
	for name, newHarness := range some(t) {
		scripts := []string{"", ocitest.Stubborn}
		if name == "vm" {
			scripts = scripts[:1]
		}
		t.Run(name, func(t *testing.T) { ocitest.HangUp(t, newHarness, scripts...) })
	}
}

// gvisorMachine is a handler with gVisor's shim. All containers of a test share a root filesystem, which runsc allows
// if it writes to it as other runtimes do.
func gvisorMachine(t testing.TB) *machine {
	m := newMachine(t, "containerd-shim-runsc-v1", "runsc")
	m.cfg.Options = map[string]any{"runsc_config": map[string]any{"overlay2": "none"}}
	m.SharedLimits = true
	plain := m.Spec
	m.Spec = func(args ...string) *specs.Spec {
		s := plain(args...)
		s.Linux.Resources = &specs.LinuxResources{} // runsc update dies without
		return s
	}
	return m
}

// inPod makes the handler put all containers into one pod, which it starts.
func (m *machine) inPod(t testing.TB) *machine {
	start(t, m.open(t), oci.CreateRequest{ID: "infra", PodID: "infra", Spec: m.Spec("sleep", "100000")})
	m.New = func() ocitest.Runtime { return podRuntime{m.open(t)} }
	return m
}

// podRuntime puts every container into the pod.
type podRuntime struct{ *shim.Runtime }

func (p podRuntime) Create(ctx context.Context, r oci.CreateRequest) (process.Process, error) {
	r.PodID = "infra"
	return p.Runtime.Create(ctx, r)
}

// TestGVisorShim runs the suite on containers that share one sandbox, as in a pod. The first container of a sandbox
// is always the infra container: when it ends, the shim may not learn its exit status.
func TestGVisorShim(t *testing.T) {
	ocitest.SomeOfSuite(t, func(t *testing.T) *ocitest.Harness { return &gvisorMachine(t).inPod(t).Harness })
}

// vmMachine is a handler whose pods run in virtual machines, of User-Mode Linux.
func vmMachine(t testing.TB) *machine {
	m := newMachine(t, "containerd-shim-podvm-v1", "runc")
	m.cfg.Runtime = ""
	images := filepath.Join(filepath.Dir(ocitest.Binary(t, "containerd-shim-podvm-v1")), "vm")
	m.cfg.Options = map[string]any{"driver": "uml", "images": images}
	netns := networkNamespace(t)
	plain := m.Spec
	m.Spec = func(args ...string) *specs.Spec {
		s := plain(args...)
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: netns})
		return s
	}
	return m
}

// networkNamespace returns the path of a new one, which the test's end removes.
func networkNamespace(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	made := make(chan error)
	go func() { // the thread ends with the goroutine
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, 0); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return path
}

// TestVMShim runs the suite on containers that share one virtual machine, as in a pod.
func TestVMShim(t *testing.T) {
	ocitest.SomeOfSuite(t, func(t *testing.T) *ocitest.Harness { return &vmMachine(t).inPod(t).Harness })
}

func TestUpdateRefused(t *testing.T) { ocitest.UpdateRefused(t, harnesses()["runc"]) }

func TestReasonOOM(t *testing.T) { ocitest.OOM(t, harnesses()["runc"]) }

func TestRealTimeSignal(t *testing.T) { ocitest.RealTimeSignal(t, harnesses()["gvisor"]) }

func TestTerminalInput(t *testing.T) {
	for name, newHarness := range some(t) {
		t.Run(name, func(t *testing.T) { ocitest.TerminalInput(t, newHarness) })
	}
}

func TestKillFrozen(t *testing.T) { ocitest.KillFrozen(t, harnesses()["runc"]) }

func TestEarlyTimeout(t *testing.T) {
	for name, newHarness := range some(t) {
		t.Run(name, func(t *testing.T) { ocitest.EarlyTimeout(t, newHarness) })
	}
}

func TestLongInput(t *testing.T) {
	for name, newHarness := range some(t) {
		t.Run(name, func(t *testing.T) { ocitest.LongInput(t, newHarness) })
	}
}

func TestLateOutput(t *testing.T) {
	for name, newHarness := range some(t) {
		t.Run(name, func(t *testing.T) { ocitest.LateOutput(t, newHarness) })
	}
}
