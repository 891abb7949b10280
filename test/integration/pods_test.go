package integration

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestPods(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"the answers carry what was asked for", podAnswers},
		{"a retry with the same name joins", podRetry},
		{"stop and remove can be repeated", podIdempotent},
		{"a stopped pod refuses what comes late", podStopped},
		{"filters", podFilters},
		{"files for DNS, hosts and hostname", podFiles},
		{"files of a pod have a limit", podFilesLimit},
		{"sysctls", podSysctls},
		{"shared memory", podShm},
		{"host network", podHostNetwork},
		{"host port", podHostPort},
		{"pods reach each other", podsReach},
		{"the host's own address is not the pod's", podAddresses},
		{"many at once", podsAtOnce},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func podAnswers(k *kubelet) {
	odd := map[string]string{"a.b/c": "", "x": "line one\nline two", "utf8": "ünïcödé", "json": `{"a": [1, "\\"]}`}
	id, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Labels, c.Annotations = maps.Clone(odd), maps.Clone(odd)
		c.Metadata.Attempt = 3
	})
	before := time.Now()
	st := k.podStatus(id)
	if st.Id != id || st.State != cri.PodSandboxState_SANDBOX_READY || st.Metadata.String() != cfg.Metadata.String() {
		k.Errorf("status = %v, want id %s, ready, metadata %v", st, id, cfg.Metadata)
	}
	if !maps.Equal(st.Labels, odd) || !maps.Equal(st.Annotations, odd) {
		k.Errorf("labels = %q, annotations = %q, want %q for both", st.Labels, st.Annotations, odd)
	}
	if age := before.Sub(time.Unix(0, st.CreatedAt)); age < 0 || age > time.Minute {
		k.Errorf("created %v ago, want 0 to 1m", age)
	}
	if st.Network.GetIp() == "" {
		k.Error("IP = \"\", want an address")
	}
	if st.Linux.GetNamespaces().GetOptions().GetPid() != cri.NamespaceMode_CONTAINER {
		k.Errorf("namespace options = %v, want pid CONTAINER", st.Linux)
	}
	named := k.podConfig()
	if st := k.podStatus(k.runPod(named, "crun")); st.RuntimeHandler != "crun" {
		k.Errorf("runtime handler = %q, want crun", st.RuntimeHandler)
	}
	for _, p := range k.pods(nil) {
		if p.Id == id && (!maps.Equal(p.Annotations, odd) || p.State != cri.PodSandboxState_SANDBOX_READY) {
			k.Errorf("listed = %v, want it ready with annotations %q", p, odd)
		}
	}
}

func podRetry(k *kubelet) {
	cfg := k.podConfig()
	first := k.runPod(cfg, "")
	if again := k.runPod(cfg, ""); again != first {
		k.Errorf("RunPodSandbox with the same request = %s, want %s", again, first)
	}
	other := k.podConfig()
	other.Metadata = cfg.Metadata
	other.Labels = map[string]string{"another": "config"}
	_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: other})
	k.refused("the name of a pod that has another configuration", err, first[:12], codes.AlreadyExists)
}

func podIdempotent(k *kubelet) {
	id, _ := k.pod()
	k.stopPod(id)
	if st := k.podStatus(id); st.State != cri.PodSandboxState_SANDBOX_NOTREADY {
		k.Errorf("state of a stopped pod = %v, want SANDBOX_NOTREADY", st.State)
	}
	k.stopPod(id)
	k.removePod(id)
	k.removePod(id)
	k.stopPod(id)
	_, err := k.Runtime.PodSandboxStatus(k.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	k.refused("status of a removed pod", err, id[:12], codes.NotFound)

	running, _ := k.sleeper()
	k.removePod(running) // stops its containers
	if left := k.containers(nil); len(left) > 0 {
		k.Errorf("containers of a removed pod = %v, want none", left)
	}
}

// podStopped: requests for a stopped pod and its containers are refused, not lost or hanging.
func podStopped(k *kubelet) {
	pod, cfg := k.pod()
	ended, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	created := k.create(pod, k.containerConfig([]string{"sleep", "1000"}), cfg)
	k.stopPod(pod)
	ctx := k.ctx()
	for what, call := range map[string]func() error{
		"CreateContainer": func() error {
			_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}), cfg)
			return err
		},
		"StartContainer": func() error {
			_, err := k.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: created})
			return err
		},
		"ExecSync": func() error {
			_, err := k.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: ended, Cmd: []string{"true"}})
			return err
		},
		"PortForward": func() error {
			_, err := k.Runtime.PortForward(ctx, &cri.PortForwardRequest{PodSandboxId: pod, Port: []int32{80}})
			return err
		},
		"UpdateContainerResources": func() error {
			_, err := k.Runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: ended,
				Linux: &cri.LinuxContainerResources{CpuShares: 100}})
			return err
		},
	} {
		k.refused(what, call(), "", codes.FailedPrecondition)
	}
	k.removeContainer(created)
	k.removeContainer(ended)
}

func podFilters(k *kubelet) {
	a, _ := k.pod(func(c *cri.PodSandboxConfig) { c.Labels = map[string]string{"tier": "front", "app": "a"} })
	b, _ := k.pod(func(c *cri.PodSandboxConfig) { c.Labels = map[string]string{"tier": "front", "app": "b"} })
	k.stopPod(b)
	state := func(s cri.PodSandboxState) *cri.PodSandboxStateValue { return &cri.PodSandboxStateValue{State: s} }
	for _, c := range []struct {
		name   string
		filter *cri.PodSandboxFilter
		want   []string
	}{
		{"nothing", nil, []string{a, b}},
		{"empty", &cri.PodSandboxFilter{}, []string{a, b}},
		{"id", &cri.PodSandboxFilter{Id: a}, []string{a}},
		{"short id", &cri.PodSandboxFilter{Id: a[:13]}, []string{a}},
		{"unknown id", &cri.PodSandboxFilter{Id: "feedfeedfeed"}, nil},
		{"ready", &cri.PodSandboxFilter{State: state(cri.PodSandboxState_SANDBOX_READY)}, []string{a}},
		{"not ready", &cri.PodSandboxFilter{State: state(cri.PodSandboxState_SANDBOX_NOTREADY)}, []string{b}},
		{"one label", &cri.PodSandboxFilter{LabelSelector: map[string]string{"tier": "front"}}, []string{a, b}},
		{"two labels", &cri.PodSandboxFilter{LabelSelector: map[string]string{"tier": "front", "app": "b"}}, []string{b}},
		{"another label", &cri.PodSandboxFilter{LabelSelector: map[string]string{"tier": "back"}}, nil},
	} {
		var got []string
		for _, p := range k.pods(c.filter) {
			got = append(got, p.Id)
		}
		if !sameSet(got, c.want) {
			k.Errorf("ListPodSandbox by %s = %v, want %v", c.name, got, c.want)
		}
	}
}

func sameSet(a, b []string) bool {
	set := map[string]int{}
	for _, s := range a {
		set[s]++
	}
	for _, s := range b {
		set[s]--
	}
	for _, n := range set {
		if n != 0 {
			return false
		}
	}
	return len(a) == len(b)
}

func podFiles(k *kubelet) {
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Hostname = "some-host"
		c.DnsConfig = &cri.DNSConfig{Servers: []string{"192.0.2.53", "2001:db8::53"},
			Searches: []string{"a.example", "b.example"}, Options: []string{"ndots:5"}}
	})
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	if got := k.exec(ctr, "hostname; cat /etc/hostname"); got != "some-host\nsome-host\n" {
		k.Errorf("hostname and /etc/hostname = %q, want %q", got, "some-host\nsome-host\n")
	}
	resolv := k.exec(ctr, "cat /etc/resolv.conf")
	for _, want := range []string{"nameserver 192.0.2.53", "nameserver 2001:db8::53", "search a.example b.example",
		"options ndots:5"} {
		if !strings.Contains(resolv, want+"\n") {
			k.Errorf("resolv.conf lacks %q, want it in:\n%s", want, resolv)
		}
	}
	hosts := k.exec(ctr, "cat /etc/hosts")
	for _, want := range []string{"localhost", k.podStatus(pod).Network.Ip, "some-host"} {
		if !strings.Contains(hosts, want) {
			k.Errorf("hosts lacks %q, want it in:\n%s", want, hosts)
		}
	}
}

// podFilesLimit: what a container writes to the files that podd mounts into /etc takes no space of the node's /run, has
// a limit, and counts as its memory (the class of CVE-2020-8557).
func podFilesLimit(k *kubelet) {
	pod, cfg := k.pod()
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	for _, file := range []string{"hostname", "hosts", "resolv.conf"} {
		dd := "dd if=/dev/zero of=/etc/" + file + " bs=64k count=64 2>&1 || true"
		if got := k.exec(ctr, dd); !strings.Contains(got, "No space left on device") {
			k.Errorf("4 MiB in /etc/%s: %q, want no space left", file, got)
		}
		options := k.exec(ctr, "grep ' /etc/"+file+" ' /proc/mounts")
		for _, want := range []string{"nosuid", "nodev", "noexec"} {
			if !strings.Contains(options, want) {
				k.Errorf("mount of /etc/%s = %q, want it %s", file, options, want)
			}
		}
		if device(k, k.Path("run", "etc", pod, file)) == device(k, k.Path("run")) {
			k.Errorf("/etc/%s is in the filesystem of %s, want one of its own", file, k.Path("run"))
		}
		stat := k.cgroupFile(ctr, "memory/memory.stat", "memory.stat")
		_, shmem, _ := strings.Cut(stat, "\nshmem ")
		shmem, _, _ = strings.Cut(shmem, "\n")
		if n, err := strconv.Atoi(shmem); err != nil || n < 900<<10 {
			k.Errorf("shmem of the container = %q, want 900 KiB or more in:\n%s", shmem, stat)
		}
		k.exec(ctr, ": >/etc/"+file) // frees the space
	}
	if got := k.exec(ctr, "echo nameserver 192.0.2.1 >/etc/resolv.conf; cat /etc/resolv.conf"); got !=
		"nameserver 192.0.2.1\n" {
		k.Errorf("/etc/resolv.conf after a change = %q, want the change", got)
	}
	k.removePod(pod)
	left, err := filepath.Glob(k.Path("run", "*", pod))
	if k.ok("list what is left", err); len(left) > 0 {
		k.Errorf("left after removal: %v, want nothing", left)
	}
}

// device returns the number of the filesystem that path is on.
func device(k *kubelet, path string) uint64 {
	k.Helper()
	var st syscall.Stat_t
	k.ok("stat "+path, syscall.Stat(path, &st))
	return st.Dev
}

func podSysctls(k *kubelet) {
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "40000\t50000", "kernel.shm_rmid_forced": "1",
			"net/core/somaxconn": "99"}
	})
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	got := k.exec(ctr, "cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/shm_rmid_forced "+
		"/proc/sys/net/core/somaxconn")
	if want := "40000\t50000\n1\n99\n"; got != want {
		k.Errorf("sysctls = %q, want %q", got, want)
	}
}

func podShm(k *kubelet) {
	pod, cfg := k.pod()
	a, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	b, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	k.exec(a, "echo shared >/dev/shm/file")
	if got := k.exec(b, "cat /dev/shm/file"); got != "shared\n" {
		k.Errorf("/dev/shm/file in the other container = %q, want %q", got, "shared\n")
	}
}

func podHostNetwork(k *kubelet) {
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Hostname = ""
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	})
	host := func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	}
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"}, host)
	ours, err := os.Readlink("/proc/self/ns/net")
	k.ok("our network namespace", err)
	if got := strings.TrimSpace(k.exec(ctr, "readlink /proc/self/ns/net")); got != ours {
		k.Errorf("network namespace = %s, want the host's, %s", got, ours)
	}
	name, err := os.Hostname()
	k.ok("our hostname", err)
	if got := strings.TrimSpace(k.exec(ctr, "hostname")); got != name {
		k.Errorf("hostname = %q, want the host's, %q", got, name)
	}
	if ip := k.podStatus(pod).Network.GetIp(); ip != "" {
		k.Errorf("IP of a pod on the host's network = %q, want none", ip)
	}
}

func podHostPort(k *kubelet) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	k.ok("find a free port", err)
	port := l.Addr().(*net.TCPAddr).Port
	k.ok("free it", l.Close())
	k.have(nginx)
	pod, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.PortMappings = []*cri.PortMapping{{ContainerPort: 80, HostPort: int32(port)}, {ContainerPort: 81}}
	})
	k.runIn(pod, cfg, nil, func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: nginx} })
	for _, url := range []string{fmt.Sprintf("http://127.0.0.1:%d/", port), "http://" + k.podStatus(pod).Network.Ip +
		"/"} {
		k.eventually("nginx at "+url, func() bool {
			resp, err := http.Get(url)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			return err == nil && strings.Contains(string(body), "Welcome to nginx")
		})
	}
}

func podsReach(k *kubelet) {
	k.have(nginx)
	server, cfg := k.pod()
	k.runIn(server, cfg, nil, func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: nginx} })
	_, client := k.sleeper()
	url := "http://" + k.podStatus(server).Network.Ip + "/"
	k.eventually("one pod fetches "+url+" of the other", func() bool {
		r, err := k.Runtime.ExecSync(k.ctx(),
			&cri.ExecSyncRequest{ContainerId: client, Cmd: []string{"wget", "-q", "-O", "-", url}, Timeout: 10})
		return err == nil && strings.Contains(string(r.Stdout), "Welcome to nginx")
	})
}

func podAddresses(k *kubelet) {
	pod, cfg := k.pod()
	ctr, _ := k.runIn(pod, cfg, []string{"sleep", "1000"})
	st := k.podStatus(pod)
	addrs := []string{st.Network.Ip}
	for _, a := range st.Network.AdditionalIps {
		addrs = append(addrs, a.Ip)
	}
	inside := k.exec(ctr, "ip addr show dev eth0")
	for _, a := range addrs {
		ip, err := netip.ParseAddr(a)
		k.ok("parse the pod's address", err)
		if !strings.Contains(inside, ip.String()+"/") {
			k.Errorf("eth0 lacks the address %s, want it in:\n%s", a, inside)
		}
	}
	if lo := k.exec(ctr, "ip addr show dev lo"); !strings.Contains(lo, "127.0.0.1/8") || !strings.Contains(lo, "UP") {
		k.Errorf("lo = %s, want it up with 127.0.0.1/8", lo)
	}
}

func podsAtOnce(k *kubelet) {
	const n = 20
	ids := make(chan string, n)
	for range n {
		cfg := k.podConfig()
		go func() {
			r, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg})
			if err != nil {
				k.Errorf("RunPodSandbox: %v", err)
			}
			ids <- r.GetPodSandboxId()
		}()
	}
	addrs := map[string]string{}
	for range n {
		id := <-ids
		if id == "" {
			continue
		}
		ip := k.podStatus(id).Network.Ip
		if other, taken := addrs[ip]; taken {
			k.Errorf("pods %s and %s both have the address %s, want one of its own for each", id, other, ip)
		}
		addrs[ip] = id
	}
}
