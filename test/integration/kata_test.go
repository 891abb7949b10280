package integration

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// kataConfig is Kata's configuration for a remote hypervisor, whose socket is the parameter.
const kataConfig = `[hypervisor.remote]
remote_hypervisor_socket = %q
remote_hypervisor_timeout = 60
disable_guest_selinux = true
[agent.kata]
dial_timeout = 30
[runtime]
internetworking_model = "none"
disable_guest_seccomp = true
disable_new_netns = true
sandbox_cgroup_only = true
static_sandbox_resource_mgmt = true
create_container_timeout = 60
`

// TestKata: podd drives the shim of Kata Containers as it comes from its module through the life of a pod. Hypervisor
// and agent only pretend (test/kata/pretend): the test machines cannot run Kata's. `make test-kata` builds both.
func TestKata(t *testing.T) {
	bin := os.Getenv("KATA")
	if bin == "" {
		t.Skip("run it by make test-kata, which builds Kata's shim")
	}
	listenForSyslog(t)
	dir, err := os.MkdirTemp("/tmp", "kata-") // short, because the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "configuration.toml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kataConfig, filepath.Join(dir, "hypervisor")), 0o644); err != nil {
		t.Fatal(err)
	}
	calls := startPretend(t, filepath.Join(bin, "kata-pretend"), dir)
	k := start(t, `runtime.handlers.kata.type = "shim"`,
		fmt.Sprintf("runtime.handlers.kata.path = %q", filepath.Join(bin, "containerd-shim-kata-v2")),
		fmt.Sprintf("runtime.handlers.kata.config_path = %q", config))
	p := &kataPod{kubelet: k, calls: calls}
	p.checkStart()
	p.checkCommands()
	p.checkUpdate()
	p.checkRestart()
	p.checkEnd()
}

// kataPod is a pod in a machine that is not there; calls are those that its agent got.
type kataPod struct {
	*kubelet
	calls    *printed
	pod, ctr string
}

// printed keeps what a program prints.
type printed struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *printed) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *printed) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startPretend runs the hypervisor that pretends until the test ends.
func startPretend(t *testing.T, program, dir string) *printed {
	t.Helper()
	calls := &printed{}
	cmd := exec.Command(program, dir)
	cmd.Stdout, cmd.Stderr = calls, calls
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("calls of the agent:\n%s", calls)
		}
	})
	return calls
}

// listenForSyslog provides the syslog without which Kata's shim does not start, where the machine has none.
func listenForSyslog(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/dev/log"); err == nil {
		return
	}
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: "/var/run/syslog", Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(); _ = os.Remove("/var/run/syslog") })
	go func() {
		b := make([]byte, 64<<10)
		for {
			if _, err := l.Read(b); err != nil {
				return
			}
		}
	}()
}

// wants fails the test unless the agent got a call with these words.
func (p *kataPod) wants(words ...string) {
	p.Helper()
	for line := range strings.Lines(p.calls.String()) {
		found := 0
		for _, w := range words {
			if strings.Contains(line, w) {
				found++
			}
		}
		if found == len(words) {
			return
		}
	}
	p.Errorf("calls of the agent have none with %q:\n%s", words, p.calls)
}

// checkStart: the machine is made for the pod, gets its sysctls, and its container.
func (p *kataPod) checkStart() {
	p.Helper()
	cfg := p.podConfig(func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "4321"} })
	p.pod = p.runPod(cfg, "kata")
	p.wants("CreateVM", p.pod)
	p.wants("CreateSandbox", cfg.Hostname)
	p.wants("CreateContainer", p.pod, "net.core.somaxconn:4321")
	p.ctr, _ = p.runIn(p.pod, cfg, []string{"sleep", "10000"})
	p.wants("CreateContainer", p.ctr, "sleep 10000")
	p.wants("StartContainer", p.ctr)
}

// checkCommands: exit codes arrive, and a command that takes too long ends alone, though the shim reports the first
// process of the pod as its pid.
func (p *kataPod) checkCommands() {
	p.Helper()
	for command, want := range map[string]int32{"true": 0, "false": 1} {
		r, err := p.Runtime.ExecSync(p.ctx(), &cri.ExecSyncRequest{ContainerId: p.ctr, Cmd: []string{command}, Timeout: 20})
		if err != nil || r.ExitCode != want {
			p.Errorf("ExecSync %s = %v, %v, want exit code %d", command, r, err, want)
		}
	}
	_, err := p.Runtime.ExecSync(p.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.ctr, Cmd: []string{"sleep", "9"}, Timeout: 1})
	p.refused("ExecSync of a command that takes too long", err, "", codes.DeadlineExceeded)
	p.wants("SignalProcess", p.ctr, " 9")
	p.checkReady("after a command that took too long")
}

func (p *kataPod) checkReady(when string) {
	p.Helper()
	if st := p.podStatus(p.pod); st.State != cri.PodSandboxState_SANDBOX_READY {
		p.Errorf("pod %s = %v, want it ready", when, st.State)
	}
	if st := p.container(p.ctr); st.State != cri.ContainerState_CONTAINER_RUNNING {
		p.Errorf("container %s = %v, want it running", when, st.State)
	}
}

// checkUpdate: statistics are the agent's, and limits reach it.
func (p *kataPod) checkUpdate() {
	p.Helper()
	s, err := p.Runtime.ContainerStats(p.ctx(), &cri.ContainerStatsRequest{ContainerId: p.ctr})
	p.ok("ContainerStats", err)
	if got := s.GetStats().GetCpu().GetUsageCoreNanoSeconds().GetValue(); got != 12345678 {
		p.Errorf("CPU time = %d ns, want the agent's 12345678", got)
	}
	_, err = p.Runtime.UpdateContainerResources(p.ctx(), &cri.UpdateContainerResourcesRequest{
		ContainerId: p.ctr, Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 77 << 20},
	})
	p.ok("UpdateContainerResources", err)
	p.wants("UpdateContainer", p.ctr, fmt.Sprint(77<<20))
}

// checkRestart: the pod does not depend on podd.
func (p *kataPod) checkRestart() {
	p.Helper()
	p.ok("kill podd", p.Kill9())
	p.ok("start podd", p.Start(p.ctx()))
	p.checkReady("after podd was killed")
}

// checkEnd: the container is signalled, and the machine ends with the pod.
func (p *kataPod) checkEnd() {
	p.Helper()
	p.stopContainer(p.ctr, 0)
	if st := p.exited(p.ctr); st.ExitCode != 137 {
		p.Errorf("exit code = %d, want 137", st.ExitCode)
	}
	p.stopPod(p.pod)
	p.removePod(p.pod)
	p.wants("DestroySandbox")
	p.wants("StopVM", p.pod)
	for _, dir := range []string{"/run/kata-containers/shared/sandboxes", "/run/vc/sbs"} {
		if left, _ := filepath.Glob(filepath.Join(dir, p.pod+"*")); len(left) > 0 {
			p.Errorf("left behind: %v", left)
		}
	}
}
