package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// poolStatus is the pool of networks in podd's status.
type poolStatus struct {
	Size, Ready, Taken, Missed int
	Problem                    string
}

func (k *kubelet) pool() poolStatus {
	k.Helper()
	var status struct {
		Pool poolStatus `json:"network_pool"`
	}
	k.ok("read the status", json.Unmarshal([]byte(k.admin("/v1/status")), &status))
	return status.Pool
}

func (k *kubelet) poolHas(ready int) {
	k.Helper()
	k.eventually(fmt.Sprintf("%d networks are ready", ready), func() bool { return k.pool().Ready == ready })
}

// attached returns the ids in the records of the network.
func (k *kubelet) attached() []string {
	k.Helper()
	files, err := filepath.Glob(k.Path("root", "network", "*.json"))
	k.ok("list the records of the network", err)
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".json")
	}
	return files
}

// TestNetworkPool: pods take networks that were made in advance, with the real plugins.
func TestNetworkPool(t *testing.T) {
	t.Parallel()
	k := startWith(t, daemon.Options{Set: []string{fmt.Sprintf("network.netns_dir = %q", netnsDir)}})
	defer func() { // the leak check compares with the start, when there was no pool
		k.setPool(0)
		k.eventually("the pool is empty", func() bool { return len(k.attached()) == len(k.pods(nil)) })
	}()
	for name, test := range map[string]func(k *kubelet){
		"a pod of the pool is like any other": poolPod,
		"pods that need more":                 poolNeedsMore,
		"another configuration":               poolReconfigured,
		"podd is killed":                      poolKilled,
		"the last addresses":                  poolGivesWay,
	} {
		t.Run(name, func(t *testing.T) {
			k.setPool(2)
			k.poolHas(2)
			s := *k
			s.TB = t
			test(&s)
			k.ok("remove the pods", k.RemovePods(k.ctx()))
			k.checkFindsNothing("at the end")
		})
	}
}

// setPool reloads the configuration with another size of the pool.
func (k *kubelet) setPool(size int) {
	k.Helper()
	k.writeReload(fmt.Sprintf("network.pool_size = %d\n", size))
	if status, body := k.askAdmin(http.MethodPost, "/v1/reload"); status != http.StatusOK {
		k.Fatalf("reload = %d %s, want 200", status, body)
	}
}

// poolPod: the pod has the names that it would have without the pool, and its containers reach another pod.
func poolPod(k *kubelet) {
	ready := k.attached()
	pod, cfg := k.pod()
	if !slices.Contains(ready, pod) {
		k.Errorf("pod %s, want one of the networks %v", pod, ready)
	}
	checkNamed(k, pod)
	k.checkFindsNothing("beside the pool")
	server, serverCfg := k.pod()
	k.runIn(server, serverCfg, []string{"sh", "-c", "echo hello >/tmp/index.html; exec httpd -f -p 80 -h /tmp"})
	client, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	get := "for i in 1 2 3 4 5; do wget -q -O - http://" + k.podStatus(server).Network.GetIp() + "/ && exit; sleep 1; done"
	if got := k.exec(client, get); got != "hello\n" {
		k.Errorf("one pod of the pool gets %q of another, want hello", got)
	}
	if got := k.exec(client, "cat /proc/sys/net/ipv4/ip_unprivileged_port_start"); strings.TrimSpace(got) != "0" {
		k.Errorf("ip_unprivileged_port_start = %s, want podd's default of 0", got)
	}
	if s := k.pool(); s.Taken < 2 {
		k.Errorf("pool %+v, want 2 taken", s)
	}
}

// poolNeedsMore: pods with a host port or a sysctl of the network take none.
func poolNeedsMore(k *kubelet) {
	before := k.attached()
	for _, mod := range []func(*cri.PodSandboxConfig){
		func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{HostPort: 28471, ContainerPort: 80}}
		},
		func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"} },
	} {
		if pod, _ := k.pod(mod); slices.Contains(before, pod) {
			k.Errorf("pod %s took one of the networks %v", pod, before)
		}
	}
}

// poolReconfigured: what was made with another configuration of CNI is given to no pod; a plugin that is not listed
// ends the pool, and the status says so.
func poolReconfigured(k *kubelet) {
	path := k.Path("net.d", "10-test.conflist")
	text, err := os.ReadFile(path)
	k.ok("read the configuration", err)
	defer func() { k.ok("write the configuration", os.WriteFile(path, text, 0o644)) }()
	former := k.attached()
	changed := strings.Replace(string(text), `"hairpinMode": true`, `"hairpinMode": false`, 1)
	k.ok("change the configuration", os.WriteFile(path, []byte(changed), 0o644))
	if pod, _ := k.pod(); slices.Contains(former, pod) {
		k.Errorf("pod %s has a network of the former configuration", pod)
	}
	k.poolHas(2)
	if now := k.attached(); slices.ContainsFunc(now, func(id string) bool { return slices.Contains(former, id) }) {
		k.Errorf("attached %v, want none of the former %v", now, former)
	}
	tuning := strings.Replace(changed, `"plugins": [`, `"plugins": [{"type": "tuning"},`, 1)
	k.ok("add a plugin", os.WriteFile(path, []byte(tuning), 0o644))
	k.eventually("the pool is empty, and says why", func() bool {
		s := k.pool()
		return s.Ready == 0 && strings.Contains(s.Problem, `"tuning"`)
	})
}

// poolKilled kills podd at moments in which the pool is filled, taken from and emptied. The next one leaves nothing
// of it but its own.
func poolKilled(k *kubelet) {
	for i := range soak(6, 60) {
		if i%2 == 0 {
			cfg := k.podConfig()
			k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
			go func() { _, _ = k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg}) }()
		} else {
			k.setPool(i % 4)
		}
		time.Sleep(time.Duration(i*37%300) * time.Millisecond)
		k.ok("kill podd", k.Kill9())
		k.ok("start podd", k.Start(k.ctx()))
		k.setPool(1)
		k.poolHas(1)
		var found string
		k.eventually("nothing is left but pods and the pool", func() bool {
			out, _, code := k.podd("check") // a collection frees the namespace after the attachment
			if out != found {
				k.Logf("check after a kill: %s", out)
			}
			found = out
			return code == 0 && len(k.attached()) == len(k.pods(nil))+1
		})
	}
}

// poolGivesWay: in a range that the pool has filled, a pod that cannot take from it gets an address of it.
func poolGivesWay(k *kubelet) {
	path := k.Path("net.d", "10-test.conflist")
	text, err := os.ReadFile(path)
	k.ok("read the configuration", err)
	defer func() { k.ok("write the configuration", os.WriteFile(path, text, 0o644)) }()
	small := regexp.MustCompile(`"(10\.\d+\.\d+\.)0/22"`).ReplaceAllString(string(text), `"${1}0/22", "rangeEnd": "${1}6"`)
	k.ok("make the range small", os.WriteFile(path, []byte(small), 0o644))
	k.setPool(5)
	k.poolHas(5) // all addresses but the gateway's, 1
	port := func(c *cri.PodSandboxConfig) {
		c.PortMappings = []*cri.PortMapping{{HostPort: 28472, ContainerPort: 80}}
	}
	pod, _ := k.pod(port)
	if k.podStatus(pod).Network.GetIp() == "" {
		k.Error("the pod has no address")
	}
	if s := k.pool(); s.Problem == "" {
		k.Errorf("pool %+v, want that it gives way", s)
	}
}
