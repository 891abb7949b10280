package integration

import (
	"encoding/json"
	"os"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestStuckContainers: a container that signals do not end can be stopped and removed nevertheless.
func TestStuckContainers(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.kill_timeout="2s"`)
	obstacles := map[string]func(t *testing.T, s containerState){
		"monitor hangs": func(t *testing.T, s containerState) {
			if err := syscall.Kill(s.Monitor.Pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
		},
		"paused": func(t *testing.T, s containerState) {
			if dir := s.Cgroups["freezer"]; dir != "" {
				writeFile(t, dir+"/freezer.state", "FROZEN")
			} else {
				writeFile(t, s.Cgroups[""]+"/cgroup.freeze", "1")
			}
		},
	}
	for name, obstruct := range obstacles {
		t.Run(name, func(t *testing.T) {
			k := k.sub(t)
			pod, container := k.sleeper()
			obstruct(t, stateOf(t, k, container))
			begin := time.Now()
			k.stopContainer(container, 0)
			t.Logf("stopped after %v", time.Since(begin))
			if st := k.container(container); st.State != cri.ContainerState_CONTAINER_EXITED {
				t.Errorf("status after the stop = %v, want CONTAINER_EXITED", st)
			}
			k.removePod(pod)
		})
	}
}

// containerState has the fields of a container's state.json that the tests use.
type containerState struct {
	Monitor, Init struct{ Pid int }
	Cgroups       map[string]string
}

func stateOf(t testing.TB, k *kubelet, id string) (s containerState) {
	t.Helper()
	data, err := os.ReadFile(k.Path("run", "containers", id, "state.json"))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
