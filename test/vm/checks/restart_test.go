package checks

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPodsOutliveTheDaemon restarts podd by systemctl and by a crash, after which systemd starts it again.
func TestPodsOutliveTheDaemon(t *testing.T) {
	for _, c := range []struct {
		name    string
		restart func(*kubelet)
	}{
		{"systemctl restart", func(k *kubelet) { systemctl(k, "restart", "podd") }},
		{"kill -9", func(k *kubelet) {
			pid := show(k, "podd", "MainPID")
			systemctl(k, "kill", "--kill-whom=main", "--signal=KILL", "podd")
			k.eventually("systemd has started podd again", func() bool {
				now := show(k, "podd", "MainPID")
				return now != "0" && now != pid && show(k, "podd", "ActiveState") == "active"
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) { outlives(t, c.restart) })
	}
}

func outlives(t *testing.T, restart func(*kubelet)) {
	k := newKubelet(t)
	k.runPod()
	id := k.start("i=0; while :; do i=$((i+1)); echo line $i; sleep 0.2; done")
	k.eventually("the container writes", func() bool { return strings.Contains(k.log(), "line 3") })
	before, pid, cgroup, podd := k.status(id), k.pid(id), k.cgroup(id), show(t, "podd", "MainPID")

	restart(k)

	if now := show(t, "podd", "MainPID"); now == podd || now == "0" {
		t.Fatalf("MainPID after the restart = %s, was %s, want a new process", now, podd)
	}
	after := k.status(id)
	if after.State != cri.ContainerState_CONTAINER_RUNNING || after.StartedAt != before.StartedAt {
		t.Errorf("after the restart: %v, started at %d, want CONTAINER_RUNNING, %d", after.State, after.StartedAt,
			before.StartedAt)
	}
	if k.pid(id) != pid || k.cgroup(id) != cgroup {
		t.Errorf("after the restart: process %s in %s, want %s in %s", k.pid(id), k.cgroup(id), pid, cgroup)
	}
	size := len(k.log())
	k.eventually("the container still writes", func() bool { return len(k.log()) > size })
	k.noLineLost()
	if got := k.exec(id, "echo in; cat /sys/class/net/eth0/operstate"); got != "in\nup" {
		t.Errorf("exec after the restart = %q, want \"in\\nup\"", got)
	}
	_, err := k.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 1})
	k.ok("StopContainer", err)
	if st := k.exited(id); st.ExitCode != 137 {
		t.Errorf("exit code = %d, want 137", st.ExitCode)
	}
}

// noLineLost checks that the numbers in the log are consecutive.
func (k *kubelet) noLineLost() {
	k.Helper()
	want := 0
	for line := range strings.Lines(k.log()) {
		if want++; strings.HasSuffix(line, "\n") && number(k, line[strings.LastIndex(line, " ")+1:len(line)-1]) != want {
			k.Fatalf("line %d of the log = %q, want number %d", want, line, want)
		}
	}
}
