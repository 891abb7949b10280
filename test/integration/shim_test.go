package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runcShim configures a handler with the shim of runc, whose containers are on the node's kernel. The pods have an
// infra container, and so one shim each.
func runcShim() []string {
	return []string{
		`runtime.handlers.runc-shim.type = "shim"`, `runtime.handlers.runc-shim.path = "containerd-shim-runc-v2"`,
		`runtime.handlers.runc-shim.runtime = "runc"`, `runtime.handlers.runc-shim.infra = "pause"`,
	}
}

// TestShimKilled kills the shim of one pod. That pod is not ready, its containers have ended, nobody knows how, and it
// can be stopped, removed and made again; other pods of the same handler do not notice.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	for _, handler := range []string{"runc-shim", "gvisor-shim"} {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			other := k.mixedPod(handler)
			for name, kill := range map[string]func(*mixedPod){
				"under podd": func(p *mixedPod) { k.killShim(p.id) },
				"while podd is away": func(p *mixedPod) {
					k.ok("kill podd", k.Kill9())
					k.killShim(p.id)
					k.ok("start podd", k.Start(k.ctx()))
				},
			} {
				t.Run(name, func(t *testing.T) { shimKilled(k.withT(t), handler, kill) })
			}
			if st := k.podStatus(other.id); st.State != cri.PodSandboxState_SANDBOX_READY ||
				st.GetNetwork().GetIp() != other.ip {
				t.Errorf("the other pod is %s at %s", st.State, st.GetNetwork().GetIp())
			}
			for _, test := range []func(*kubelet, *mixedPod){mixedShare, mixedLogs, mixedStop} {
				test(k, other)
			}
		})
	}
}

func shimKilled(k *kubelet, handler string, kill func(*mixedPod)) {
	k.Helper()
	p := k.mixedPod(handler)
	kill(p)
	k.eventually("pod is not ready",
		func() bool { return k.podStatus(p.id).State == cri.PodSandboxState_SANDBOX_NOTREADY })
	for _, c := range []string{p.web, p.cat} {
		if st := k.exited(c); st.ExitCode != 255 {
			k.Errorf("exit code %d, want 255: nobody knows it", st.ExitCode)
		}
	}
	_, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"true"}, Timeout: 10})
	if err == nil {
		k.Error("a command was run in a container that has ended")
	}
	k.stopPod(p.id)
	k.removePod(p.id)
	p.cfg.Metadata.Attempt++
	again := k.runPod(p.cfg, handler)
	k.stopPod(again)
	k.removePod(again)
}

// killShim kills the shim that serves the pod.
func (k *kubelet) killShim(pod string) {
	k.Helper()
	data, err := os.ReadFile(k.Path("run", "containers", pod, "podd.json"))
	k.ok("read the record of the shim", err)
	var record struct{ Shim struct{ Pid int } }
	k.ok("read the record of the shim", json.Unmarshal(data, &record))
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", record.Shim.Pid))
	if err != nil || string(comm) != "containerd-shim\n" {
		k.Fatalf("process %d is %q, %v", record.Shim.Pid, comm, err)
	}
	k.ok("kill the shim", syscall.Kill(record.Shim.Pid, syscall.SIGKILL))
}
