package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/sample"
)

// runcShim returns the configuration of a handler with runc's shim, whose containers use the node's kernel. Each pod
// has an infra container, and so one shim.
func runcShim() []string {
	return []string{
		`runtime.handlers.runc-shim.type = "shim"`, `runtime.handlers.runc-shim.path = "containerd-shim-runc-v2"`,
		`runtime.handlers.runc-shim.runtime = "runc"`, `runtime.handlers.runc-shim.infra = "pause"`,
	}
}

// TestShimKilled kills the shim of one pod. That pod is then not ready, its containers have exited with an unknown exit
// code, and it can be stopped, removed and created again; other pods of the same handler are not affected.
func TestShimKilled(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	for _, handler := range sample.Some(t, "runc-shim", "gvisor-shim", "vm") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			other := k.mixedPod(handler)
			for name, kill := range map[string]func(*mixedPod){
				"under podd": func(p *mixedPod) { k.signalShim(p.id, syscall.SIGKILL) },
				"while podd is away": func(p *mixedPod) {
					k.ok("kill podd", k.Kill9())
					k.signalShim(p.id, syscall.SIGKILL)
					k.ok("start podd", k.Start(k.ctx()))
				},
			} {
				t.Run(name, func(t *testing.T) { shimKilled(k.withT(t), handler, kill) })
			}
			t.Run("stopped", func(t *testing.T) { shimStopped(k.withT(t), handler) })
			if st := k.podStatus(other.id); st.State != cri.PodSandboxState_SANDBOX_READY ||
				st.GetNetwork().GetIp() != other.ip {
				t.Errorf("other pod = %s with IP %s, want ready with %s", st.State, st.GetNetwork().GetIp(), other.ip)
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
			k.Errorf("exit code = %d, want 255, for unknown", st.ExitCode)
		}
	}
	_, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"true"}, Timeout: 10})
	if err == nil {
		k.Error("ExecSync in an exited container: error = nil, want one")
	}
	k.stopPod(p.id)
	k.removePod(p.id)
	p.cfg.Metadata.Attempt++
	again := k.runPod(p.cfg, handler)
	k.stopPod(again)
	k.removePod(again)
}

// shimStopped: a pod whose shim is stopped can be stopped and removed, also when calls that had no answer have filled
// its socket.
func shimStopped(k *kubelet, handler string) {
	k.Helper()
	p := k.mixedPod(handler)
	k.signalShim(p.id, syscall.SIGSTOP)
	var calls errgroup.Group
	for range 8 {
		calls.Go(func() error {
			for range 60 {
				ctx, cancel := context.WithTimeout(k.ctx(), 50*time.Millisecond)
				_, _ = k.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"true"}})
				cancel()
			}
			return nil
		})
	}
	_ = calls.Wait()
	began := time.Now()
	k.stopContainer(p.web, 1)
	k.stopPod(p.id)
	if took := time.Since(began); took > time.Minute {
		k.Errorf("stop of a pod whose shim is stopped took %v", took)
	}
	k.removePod(p.id)
}

// signalShim sends a signal to the shim that serves the pod.
func (k *kubelet) signalShim(pod string, signal syscall.Signal) {
	k.Helper()
	data, err := os.ReadFile(k.Path("run", "containers", pod, "podd.json"))
	k.ok("read the record of the shim", err)
	var record struct{ Shim struct{ Pid int } }
	k.ok("read the record of the shim", json.Unmarshal(data, &record))
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", record.Shim.Pid))
	if err != nil || string(comm) != "containerd-shim\n" {
		k.Fatalf("comm of process %d = %q, %v, want %q", record.Shim.Pid, comm, err, "containerd-shim\n")
	}
	k.ok("signal the shim", syscall.Kill(record.Shim.Pid, signal))
}
