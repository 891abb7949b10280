package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// vmHandler is the handler that the tests of virtual machines use: vm for User-Mode Linux, vm-qemu for QEMU.
func vmHandler() string {
	if h := os.Getenv("VM_HANDLER"); h != "" {
		return h
	}
	return "vm"
}

// TestVMKilled kills what a pod's virtual machine consists of, at each stage of a pod's life. Without a part of its
// machine the pod is not ready, its containers have exited, calls return, nothing is left, and the kubelet's next
// attempt succeeds. The death of podd changes nothing for the pod.
func TestVMKilled(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, victim := range vmVictims() {
		for _, stage := range vmStages() {
			if !victim.at(stage) {
				continue
			}
			t.Run(victim.name+" "+stage.name, func(t *testing.T) {
				p := &vmPod{kubelet: k.sub(t), machine: map[int]string{}}
				p.cfg = p.podConfig(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true })
				stage.run(p)
				p.noteMachine()
				victim.kill(p)
				victim.check(p)
			})
		}
	}
}

// TestVMContainersEnd: the end of every container is known at once with its reason, and the machine ends by itself. (A
// guest's kernel that dies of unmounting a container's files reports none any more, in every second pod.)
func TestVMContainersEnd(t *testing.T) {
	t.Parallel()
	k := start(t)
	for range soak(1, 3) {
		cfg := k.podConfig()
		pod := k.runPod(cfg, vmHandler())
		for range soak(2, 5) {
			ctr, _ := k.runIn(pod, cfg, []string{"sh", "-c", "ls -R /etc >/tmp/list; touch /x; exit 4"})
			if st := k.exited(ctr); st.ExitCode != 4 {
				t.Errorf("exit code = %d, want 4", st.ExitCode)
			}
		}
		for range soak(5, 30) { // the reason and the exit come by separate ways, and either may be first
			ctr, _ := k.runIn(pod, cfg, []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=20M"},
				func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 15 << 20 })
			if st := k.exited(ctr); st.ExitCode != 137 || st.Reason != "OOMKilled" {
				t.Errorf("exit code = %d, reason = %q, want 137 and OOMKilled", st.ExitCode, st.Reason)
			}
		}
		ctr, _ := k.runIn(pod, cfg, []string{"sleep", "10000"})
		k.exec(ctr, "ls -R /etc; touch /y")
		began := time.Now()
		k.stopContainer(ctr, 0)
		if took := time.Since(began); took > 9*time.Second { // the driver gives up a machine after 10
			t.Errorf("StopContainer took %s: the guest has not reported the end", took)
		}
		k.removePod(pod)
	}
}

// vmPod is a pod in a virtual machine.
type vmPod struct {
	*kubelet
	cfg      *cri.PodSandboxConfig
	pod, ctr string
	// call is the result of the call in progress, nil if there is none.
	call <-chan error
	// machine are the processes of the machine and the shim, by pid.
	machine map[int]string
}

// monitors are the names of the processes of the monitors, everything those of a machine, the shim first.
var (
	monitors   = []string{"kernel", "qemu-system-x86"}
	everything = append([]string{"containerd-shim", "virtiofsd"}, monitors...)
)

// vmStage is a time in the life of a pod. run brings a pod there.
type vmStage struct {
	name string
	run  func(*vmPod)
}

func vmStages() []vmStage {
	return []vmStage{
		{"while it boots", (*vmPod).boot},
		{"without containers", (*vmPod).runSandbox},
		{"with a created container", func(p *vmPod) { p.runSandbox(); p.createContainer("sleep 10000") }},
		{"with a running container", func(p *vmPod) { p.runContainer("sleep 10000") }},
		{"during an exec", func(p *vmPod) {
			p.runContainer("sleep 10000")
			p.during(func(ctx context.Context) error {
				r, err := p.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.ctr,
					Cmd: []string{"sh", "-c", "touch /dev/shm/executing; exec sleep 10000"}, Timeout: 100000})
				if err == nil && r.ExitCode != 137 {
					return fmt.Errorf("exit code %d, want 137 or an error", r.ExitCode)
				}
				return nil
			})
			p.eventually("the command runs", func() bool { return p.tryExec("test -e /dev/shm/executing") == nil })
		}},
		{"while a container stops", func(p *vmPod) {
			p.runContainer("trap 'touch /dev/shm/stopping' TERM; touch /dev/shm/ready; while :; do sleep 0.1; done")
			p.eventually("the container waits for a signal", func() bool { return p.tryExec("test -e /dev/shm/ready") == nil })
			p.during(func(ctx context.Context) error {
				_, err := p.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: p.ctr, Timeout: 100000})
				return err
			})
			p.eventually("the container has the signal", func() bool { return p.tryExec("test -e /dev/shm/stopping") == nil })
		}},
	}
}

// vmVictim is what is killed. at reports at which stages that is possible, and worth its time in this run.
type vmVictim struct {
	name  string
	at    func(vmStage) bool
	kill  func(*vmPod)
	check func(*vmPod)
}

func vmVictims() []vmVictim {
	always := func(vmStage) bool { return true }
	// In a short run, the stages at which most differs.
	some := func(s vmStage) bool { return soak(strings.HasPrefix(s.name, "while"), true) }
	victims := []vmVictim{
		{"monitor", always, func(p *vmPod) { p.killProcess(monitors...) }, (*vmPod).checkGone},
		// Process 1 of the guest, the agent, cannot be killed otherwise: its end is the end of the kernel.
		{"guest", func(s vmStage) bool {
			return s.name == "with a running container" || soaking() && s.name == "during an exec"
		}, (*vmPod).panicGuest, (*vmPod).checkGone},
		{"shim", some, func(p *vmPod) { p.killProcess("containerd-shim") }, (*vmPod).checkGone},
		{"podd", some, func(p *vmPod) { p.ok("kill podd", p.Kill9()) }, (*vmPod).checkUnaffected},
	}
	if vmHandler() == "vm-qemu" {
		victims = append(victims, vmVictim{"virtiofsd", always, func(p *vmPod) { p.killProcess("virtiofsd") },
			(*vmPod).checkGone})
	}
	return victims
}

func (p *vmPod) runSandbox() { p.pod = p.runPod(p.cfg, vmHandler()) }

func (p *vmPod) createContainer(command string) {
	cfg := p.containerConfig([]string{"sh", "-c", command},
		func(c *cri.ContainerConfig) { c.Linux.SecurityContext.Privileged = true })
	p.ctr = p.create(p.pod, cfg, p.cfg)
}

func (p *vmPod) runContainer(command string) {
	p.runSandbox()
	p.createContainer(command)
	p.startContainer(p.ctr)
}

// boot runs the pod until its monitor runs.
func (p *vmPod) boot() {
	p.ok("make the pod's log directory", os.MkdirAll(p.cfg.LogDirectory, 0o755))
	p.during(func(ctx context.Context) error {
		_, err := p.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: p.cfg, RuntimeHandler: vmHandler()})
		if err == nil {
			return fmt.Errorf("RunPodSandbox of a pod whose machine was killed = nil, want an error")
		}
		return nil
	})
	p.eventually("the monitor runs", func() bool { p.noteMachine(); return !p.ended(monitors...) })
}

// during starts a call whose result checkCall wants.
func (p *vmPod) during(call func(context.Context) error) {
	result := make(chan error, 1)
	ctx := p.ctx()
	go func() { result <- call(ctx) }()
	p.call = result
}

// checkCall fails the test unless the call in progress returns soon, without an error.
func (p *vmPod) checkCall() {
	p.Helper()
	if p.call == nil {
		return
	}
	select {
	case err := <-p.call:
		if err != nil {
			p.Errorf("call in progress: %v", err)
		}
	case <-time.After(time.Minute):
		p.Error("the call in progress has not returned after a minute")
	}
}

func (p *vmPod) tryExec(command string) error {
	r, err := p.Runtime.ExecSync(p.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.ctr, Cmd: []string{"sh", "-c", command}, Timeout: 30})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("exit code %d", r.ExitCode)
	}
	return err
}

// noteMachine notes the shim and its children. Only one pod exists at a time.
func (p *vmPod) noteMachine() {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	parents := map[int]int{}
	for _, file := range files {
		var pid, parent int
		var comm, state string
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		if _, err := fmt.Sscan(string(data), &pid, &comm, &state, &parent); err != nil {
			continue // a name with spaces
		}
		parents[pid] = parent
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if comm == "(containerd-shim)" && strings.HasPrefix(cwd, p.Path("run")+"/") {
			p.machine[pid] = "containerd-shim"
		}
	}
	for pid, parent := range parents {
		if p.machine[parent] == "containerd-shim" {
			comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			p.machine[pid] = strings.TrimSpace(string(comm))
		}
	}
}

// killProcess kills the processes of the machine with one of these names.
func (p *vmPod) killProcess(names ...string) {
	p.Helper()
	killed := false
	for pid, comm := range p.machine {
		if slices.Contains(names, comm) {
			killed = syscall.Kill(pid, syscall.SIGKILL) == nil || killed // the start of the shim ends early
		}
	}
	if !killed {
		p.Fatalf("processes of the machine = %v, want one of %v to kill", p.machine, names)
	}
}

// panicGuest makes the guest's kernel panic.
func (p *vmPod) panicGuest() {
	_, err := p.Runtime.ExecSync(p.ctx(), &cri.ExecSyncRequest{ContainerId: p.ctr,
		Cmd: []string{"sh", "-c", "echo c >/proc/sysrq-trigger; sleep 100"}, Timeout: 60})
	p.Logf("the command that makes the kernel panic: %v", err)
}

// checkGone checks a pod whose machine is gone, and removes it as the kubelet does.
func (p *vmPod) checkGone() {
	p.Helper()
	p.checkCall()
	p.eventually("the machine is gone", func() bool { return p.ended(everything[1:]...) })
	if p.pod == "" {
		p.eventually("the shim is gone", func() bool { return p.ended("containerd-shim") })
		p.retry()
		return
	}
	p.eventually("the pod is not ready",
		func() bool { return p.podStatus(p.pod).State == cri.PodSandboxState_SANDBOX_NOTREADY })
	if p.ctr != "" {
		if st := p.exited(p.ctr); st.ExitCode != 137 && st.ExitCode != 255 {
			p.Errorf("exit code = %d, want 137 for killed or 255 for unknown", st.ExitCode)
		}
		_, err := p.Runtime.ExecSync(p.ctx(),
			&cri.ExecSyncRequest{ContainerId: p.ctr, Cmd: []string{"true"}, Timeout: 10})
		p.refused("ExecSync in a container that has exited", err, "not running", codes.FailedPrecondition)
	}
	p.checkRemoval()
}

// checkRemoval removes the pod, after which nothing of its machine is left.
func (p *vmPod) checkRemoval() {
	p.Helper()
	p.stopPod(p.pod)
	p.removePod(p.pod)
	p.eventually("shim and machine are gone", func() bool { return p.ended(everything...) })
}

// retry makes the kubelet's next attempts to run the pod. Those that did not succeed are not ready, or not there.
func (p *vmPod) retry() {
	p.Helper()
	for _, pod := range p.pods(nil) {
		if pod.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			p.Errorf("pod whose machine was killed = %v, want it not ready", pod)
		}
	}
	p.cfg.Metadata.Attempt++
	p.runContainer("sleep 10000")
	p.exec(p.ctr, "true")
}

// checkUnaffected starts podd again and checks that the pod is as it was.
func (p *vmPod) checkUnaffected() {
	p.Helper()
	if p.call != nil {
		<-p.call // with podd
	}
	p.ok("start podd", p.Start(p.ctx()))
	if p.pod == "" { // podd undoes what it has not finished
		p.eventually("shim and machine are gone", func() bool { return p.ended(everything...) })
		p.retry()
		return
	}
	if st := p.podStatus(p.pod); st.State != cri.PodSandboxState_SANDBOX_READY {
		p.Errorf("pod after podd's death = %v, want it ready", st.State)
	}
	if p.ctr != "" && p.container(p.ctr).State == cri.ContainerState_CONTAINER_CREATED {
		p.startContainer(p.ctr)
	}
	if p.ctr != "" {
		p.exec(p.ctr, "true")
		p.stopContainer(p.ctr, 0)
	}
	p.checkRemoval()
}

// ended reports whether all processes of the machine with these names have ended.
func (p *vmPod) ended(names ...string) bool {
	for pid, comm := range p.machine {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, found := strings.Cut(string(stat), "("+comm+") ")
		if slices.Contains(names, comm) && found && !strings.HasPrefix(rest, "Z") { // init may leave zombies for a while
			return false
		}
	}
	return true
}
