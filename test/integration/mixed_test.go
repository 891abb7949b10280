package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mixed are the handlers of one node, and whether each has a kernel of its own.
var mixed = []struct {
	handler   string
	ownKernel bool
}{{"runc", false}, {"crun", false}, {"gvisor", true}, {"gvisor-shim", true}}

// TestMixed runs pods of all handlers on one node and one network, and looks at each from outside as kubectl does.
func TestMixed(t *testing.T) {
	t.Parallel()
	k := start(t)
	pods := map[string]*mixedPod{}
	for _, h := range mixed {
		pods[h.handler] = k.mixedPod(h.handler)
	}
	t.Run("kernel", func(t *testing.T) {
		k := k.in(t)
		host, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range mixed {
			release := strings.TrimSpace(k.exec(pods[h.handler].web, "uname -r"))
			if own := release != strings.TrimSpace(string(host)); own != h.ownKernel {
				t.Errorf("%s: kernel %s, the host's is %s", h.handler, release, host)
			}
			if dmesg := k.exec(pods[h.handler].web, "dmesg || true"); h.ownKernel != strings.Contains(dmesg, "gVisor") {
				t.Errorf("%s: dmesg %.200q", h.handler, dmesg)
			}
		}
	})
	t.Run("network", func(t *testing.T) {
		k := k.in(t)
		for from, p := range pods {
			for to, q := range pods {
				if got := k.exec(p.web, "wget -q -O - http://"+q.ip+"/"); got != "I am "+to+"\n" {
					t.Errorf("from %s to %s: %q", from, to, got)
				}
				if from != to { // busybox's ping does not see itself in gVisor
					k.exec(p.web, "ping -c 1 -W 10 "+q.ip)
				}
			}
		}
	})
	for _, c := range []struct {
		name string
		test func(*kubelet, *mixedPod)
	}{
		{"two containers", mixedShare},
		{"exec", mixedExec},
		{"attach", mixedAttach},
		{"logs", mixedLogs},
		{"port-forward", mixedForward},
		{"stats", mixedStats},
		{"stop", mixedStop},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, h := range mixed {
				t.Run(h.handler, func(t *testing.T) { c.test(k.in(t), pods[h.handler]) })
			}
		})
	}
	t.Run("namespace of the node", func(t *testing.T) {
		k := k.in(t)
		cfg := k.podConfig(func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
		})
		_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: "gvisor"})
		k.refused("RunPodSandbox", err, "kernel of their own", codes.InvalidArgument)
		_, err = k.Runtime.RunPodSandbox(k.ctx(),
			&cri.RunPodSandboxRequest{Config: k.podConfig(), RuntimeHandler: "unheard-of"})
		k.refused("RunPodSandbox", err, "[runc crun gvisor", codes.InvalidArgument, codes.NotFound)
	})
}

// in returns the kubelet for a subtest that works with the pods of its parent.
func (k *kubelet) in(t *testing.T) *kubelet {
	sub := *k
	sub.TB = t
	return &sub
}

// mixedPod is a pod with a web server and a container that reads its stdin.
type mixedPod struct {
	handler, id, ip string
	cfg             *cri.PodSandboxConfig
	web, cat        string
	webCfg          *cri.ContainerConfig
}

func (k *kubelet) mixedPod(handler string, mods ...func(*cri.PodSandboxConfig)) *mixedPod {
	k.Helper()
	p := &mixedPod{handler: handler, cfg: k.podConfig(mods...)}
	p.id = k.runPod(p.cfg, handler)
	st := k.podStatus(p.id)
	p.ip = st.GetNetwork().GetIp()
	if st.GetRuntimeHandler() != handler {
		k.Errorf("runtime handler %q, want %q", st.GetRuntimeHandler(), handler)
	}
	serve := fmt.Sprintf("echo I am %s >/tmp/index.html; httpd -p 80 -h /tmp; echo serving; echo to err >&2; exec "+
		"sleep 10000", handler)
	p.web, p.webCfg = k.runIn(p.id, p.cfg, []string{"sh", "-c", serve}, func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.Capabilities = &cri.Capability{AddCapabilities: []string{"NET_RAW"}} // ping
		c.Linux.SecurityContext.NamespaceOptions = p.cfg.Linux.SecurityContext.NamespaceOptions
	})
	p.cat, _ = k.runIn(p.id, p.cfg, []string{"cat"}, func(c *cri.ContainerConfig) {
		c.Stdin = true
		c.Linux.SecurityContext.NamespaceOptions = p.cfg.Linux.SecurityContext.NamespaceOptions
	})
	k.waitLog(p.cfg, p.webCfg, "serving\n")
	k.eventually("the web server answers", func() bool {
		r, err := k.Runtime.ExecSync(k.ctx(),
			&cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"wget", "-q", "-O", "-", "http://127.0.0.1/"}, Timeout: 30})
		return err == nil && r.ExitCode == 0
	})
	return p
}

// mixedShare: the containers of a pod share its network, name and shared memory, not their processes.
func mixedShare(k *kubelet, p *mixedPod) {
	if got := k.exec(p.cat, "hostname"); got != p.cfg.Hostname+"\n" {
		k.Errorf("hostname %q", got)
	}
	if got := k.exec(p.cat, "wget -q -O - http://127.0.0.1/"); !strings.HasPrefix(got, "I am ") {
		k.Errorf("the other container's server says %q", got)
	}
	k.exec(p.web, "echo shared >/dev/shm/x")
	if got := k.exec(p.cat, "cat /dev/shm/x"); got != "shared\n" {
		k.Errorf("shared memory has %q", got)
	}
	if got := k.exec(p.cat, "ps -o args"); strings.Contains(got, "sleep 10000") {
		k.Errorf("sees the other container's processes: %s", got)
	}
}

func mixedExec(k *kubelet, p *mixedPod) {
	r, err := k.Runtime.ExecSync(k.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, Timeout: 30})
	k.ok("ExecSync", err)
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		k.Errorf("got %q, %q, %d", r.Stdout, r.Stderr, r.ExitCode)
	}
	_, err = k.Runtime.ExecSync(k.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", "sleep 4322 & exec sleep 4321"}, Timeout: 1})
	k.refused("ExecSync that takes too long", err, "", codes.DeadlineExceeded)
	k.eventually("what took too long is gone", func() bool {
		left := k.exec(p.web, "ps -o args")
		// gVisor's shim kills one process, and tells nobody which it is inside: see oci/shim/README.md.
		return !strings.Contains(left, "sleep 4321") && (p.handler == "gvisor-shim" || !strings.Contains(left, "sleep 4322"))
	})
	// A command with a terminal that ends while runsc looks whether it has started is a failure to it: see oci/README.md.
	const command = "read x; echo got $x; test -t 0 && echo terminal; sleep 0.5"
	for _, tty := range []bool{false, true} {
		e, err := k.Runtime.Exec(k.ctx(), &cri.ExecRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", command},
			Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
		k.ok("Exec", err)
		out, err := k.stream(e.Url, "hello\n", tty)
		k.ok("exec session", err)
		if isTTY := strings.Contains(out, "terminal"); !strings.Contains(out, "got hello") || isTTY != tty {
			k.Errorf("tty %v: output %q", tty, out)
		}
	}
}

// stream is a client of exec and attach: it gives input, and returns the output once the session has ended.
func (k *kubelet) stream(address, input string, tty bool) (string, error) {
	k.Helper()
	u, err := url.Parse(address)
	k.ok("URL", err)
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, "POST", u)
	k.ok("client", err)
	ctx, cancel := context.WithTimeout(k.ctx(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	opts := remotecommand.StreamOptions{Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs}
	if tty { // the end of input would end the session
		r, w := io.Pipe()
		defer w.Close()
		go io.WriteString(w, input)
		opts = remotecommand.StreamOptions{Stdin: r, Stdout: &out, Tty: true}
	}
	err = executor.StreamWithContext(ctx, opts)
	return out.String() + errs.String(), err
}

// mixedAttach: what a client types into the first process comes back from it.
func mixedAttach(k *kubelet, p *mixedPod) {
	a, err := k.Runtime.Attach(k.ctx(), &cri.AttachRequest{ContainerId: p.cat, Stdin: true, Stdout: true, Stderr: true})
	k.ok("Attach", err)
	u, err := url.Parse(a.Url)
	k.ok("URL", err)
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: u.Host}, "POST", u)
	k.ok("client", err)
	ctx, cancel := context.WithTimeout(k.ctx(), time.Minute)
	defer cancel()
	in, typed := io.Pipe()
	seen, out := io.Pipe()
	go func() {
		_ = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: io.Discard})
		out.CloseWithError(io.ErrUnexpectedEOF)
	}()
	go io.WriteString(typed, "typed into "+p.id+"\n")
	want := "typed into " + p.id + "\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(seen, got); err != nil || string(got) != want {
		k.Errorf("got %q, %v", got, err)
	}
}

func mixedLogs(k *kubelet, p *mixedPod) {
	got := k.logText(p.cfg, p.webCfg)
	if !strings.Contains(got, "serving\n") || !strings.Contains(got, "to err\n") {
		k.Errorf("log %q", got)
	}
	path := filepath.Join(p.cfg.LogDirectory, p.webCfg.LogPath)
	k.ok("rotate", os.Rename(path, path+".1"))
	_, err := k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: p.web})
	k.ok("ReopenContainerLog", err)
	if _, err := os.Stat(path); err != nil {
		k.Errorf("after rotation: %v", err)
	}
}

func mixedForward(k *kubelet, p *mixedPod) {
	if body := k.forwarded(p.id, 80); !strings.HasPrefix(body, "I am ") {
		k.Errorf("got %q", body)
	}
}

// forwarded is what a web server answers at a pod's port that is forwarded.
func (k *kubelet) forwarded(pod string, port int32) string {
	k.Helper()
	f, err := k.Runtime.PortForward(k.ctx(), &cri.PortForwardRequest{PodSandboxId: pod, Port: []int32{port}})
	k.ok("PortForward", err)
	u, err := url.Parse(f.Url)
	k.ok("URL", err)
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{Host: u.Host})
	k.ok("client", err)
	stop, ready := make(chan struct{}), make(chan struct{})
	defer close(stop)
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u)
	forward, err := portforward.New(dialer, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, io.Discard)
	k.ok("client", err)
	go forward.ForwardPorts()
	select {
	case <-ready:
	case <-time.After(time.Minute):
		k.Fatal("port forwarding does not begin")
	}
	ports, err := forward.GetPorts()
	k.ok("ports", err)
	r, err := http.Get("http://127.0.0.1:" + strconv.Itoa(int(ports[0].Local)) + "/")
	k.ok("GET", err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	k.ok("GET", err)
	return string(body)
}

// mixedStats: what a container does shows in its figures and in its pod's.
func mixedStats(k *kubelet, p *mixedPod) {
	used := func() (cpu, memory uint64) {
		s := k.stats(p.web)
		return s.GetCpu().GetUsageCoreNanoSeconds().GetValue(), s.GetMemory().GetWorkingSetBytes().GetValue()
	}
	before, _ := used()
	// Again and again: runsc divides what the sandbox has used by what each container has had of it so far, so that the
	// figure of one falls when another one works.
	k.eventually("the work shows", func() bool {
		k.exec(p.web, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		cpu, memory := used()
		return cpu > before+uint64(10*time.Millisecond) && memory > 0
	})
	r, err := k.Runtime.PodSandboxStats(k.ctx(), &cri.PodSandboxStatsRequest{PodSandboxId: p.id})
	k.ok("PodSandboxStats", err)
	linux := r.GetStats().GetLinux()
	if n := len(linux.GetContainers()); n != 2 {
		k.Errorf("%d containers in the pod's stats", n)
	}
	if linux.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || linux.GetMemory().GetUsageBytes().GetValue() == 0 {
		k.Errorf("pod's usage: %+v, %+v", linux.GetCpu(), linux.GetMemory())
	}
}

// mixedStop: one container ends by its signal, the other goes on.
func mixedStop(k *kubelet, p *mixedPod) {
	trap, _ := k.runIn(p.id, p.cfg, []string{"sh", "-c", "trap 'exit 5' TERM; echo ready >/tmp/ready; while true; do " +
		"sleep 0.1; done"})
	k.eventually("trap is set", func() bool {
		r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: trap, Cmd: []string{"cat", "/tmp/ready"},
			Timeout: 30})
		return err == nil && r.ExitCode == 0
	})
	k.stopContainer(trap, 30)
	if st := k.container(trap); st.ExitCode != 5 {
		k.Errorf("exit code %d, want 5", st.ExitCode)
	}
	k.removeContainer(trap)
	ended, _ := k.runIn(p.id, p.cfg, []string{"sh", "-c", "exit 7"})
	if st := k.exited(ended); st.ExitCode != 7 || st.Reason != "Error" {
		k.Errorf("exit code %d, reason %s", st.ExitCode, st.Reason)
	}
	stubborn, _ := k.runIn(p.id, p.cfg, []string{"sleep", "10000"})
	k.stopContainer(stubborn, 0)
	if st := k.container(stubborn); st.ExitCode != 137 {
		k.Errorf("exit code %d, want 137", st.ExitCode)
	}
	k.exec(p.web, "true")
}

// TestMixedRestart kills the daemon under pods of every handler.
func TestMixedRestart(t *testing.T) {
	t.Parallel()
	k := start(t)
	pods := map[string]*mixedPod{}
	for _, h := range mixed {
		pods[h.handler] = k.mixedPod(h.handler)
	}
	bell := k.doorbell()
	// Two containers of each, one of which ends while there is no podd.
	away, later, started := map[string]string{}, map[string]string{}, map[string]int64{}
	for _, h := range mixed {
		p := pods[h.handler]
		away[h.handler], _ = k.runIn(p.id, p.cfg, []string{"sh", "-c", "wget -q -O - " + bell.url + h.handler + "; exit 8"})
		later[h.handler], _ = k.runIn(p.id, p.cfg,
			[]string{"sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 9"})
		started[h.handler] = k.container(p.web).StartedAt
	}
	for range mixed {
		<-bell.rung
	}
	k.ok("kill", k.Kill9())
	close(bell.answer) // nobody sees this end but the monitor, or the shim
	k.ok("start", k.Start(k.ctx()))
	for _, h := range mixed {
		t.Run(h.handler, func(t *testing.T) {
			k := k.in(t)
			p := pods[h.handler]
			if st := k.podStatus(p.id); st.State != cri.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() != p.ip {
				t.Errorf("pod is %s at %s, was at %s", st.State, st.GetNetwork().GetIp(), p.ip)
			}
			if st := k.container(p.web); st.State != cri.ContainerState_CONTAINER_RUNNING || st.StartedAt != started[h.handler] {
				t.Errorf("container is %s, started at %d, before at %d", st.State, st.StartedAt, started[h.handler])
			}
			k.exec(later[h.handler], "touch /tmp/end")
			for id, want := range map[string]int32{away[h.handler]: 8, later[h.handler]: 9} {
				if st := k.exited(id); st.ExitCode != want {
					t.Errorf("exit code %d, want %d", st.ExitCode, want)
				}
				k.removeContainer(id) // mixedStats counts the others
			}
			for _, test := range []func(*kubelet, *mixedPod){mixedShare, mixedExec, mixedAttach, mixedLogs, mixedForward,
				mixedStats, mixedStop} {
				test(k, p)
			}
		})
	}
}

// doorbell is a server on the node that pods ring at, and that answers all of them at once.
type doorbell struct {
	url          string
	rung, answer chan struct{}
}

// doorbell starts one at the pods' gateway. It takes as many rings as there are handlers.
func (k *kubelet) doorbell() doorbell {
	k.Helper()
	bridge, err := net.InterfaceByName(k.Bridge)
	k.ok("the pods' bridge", err)
	addrs, err := bridge.Addrs()
	k.ok("the pods' bridge", err)
	i := slices.IndexFunc(addrs, func(a net.Addr) bool { ip, ok := a.(*net.IPNet); return ok && ip.IP.To4() != nil })
	if i < 0 {
		k.Fatalf("the pods' bridge has no IPv4 address: %v", addrs)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addrs[i].(*net.IPNet).IP.String(), "0"))
	k.ok("listen", err)
	b := doorbell{"http://" + l.Addr().String() + "/", make(chan struct{}, len(mixed)), make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.rung <- struct{}{}
		select {
		case <-b.answer:
		case <-r.Context().Done():
		}
	})}
	go server.Serve(l)
	k.Cleanup(func() { server.Close() })
	return b
}

// TestSandboxKilled: a pod whose sandbox dies, or whose infra container with the first process of its PID namespace, is
// not ready, its containers have ended, and it can be removed.
func TestSandboxKilled(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	for _, handler := range []string{"runc", "crun", "runc-shim", "gvisor", "gvisor-shim"} {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			p := k.mixedPod(handler, func(c *cri.PodSandboxConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
			})
			k.ok("kill the infra container", syscall.Kill(k.infraPid(p.id), syscall.SIGKILL))
			k.eventually("pod is not ready",
				func() bool { return k.podStatus(p.id).State == cri.PodSandboxState_SANDBOX_NOTREADY })
			for _, c := range []string{p.web, p.cat} {
				if st := k.exited(c); st.ExitCode < 128 { // gVisor's shim says 128
					t.Errorf("exit code %d, want that of a killed one", st.ExitCode)
				}
			}
			k.stopPod(p.id)
			k.removePod(p.id)
		})
	}
}

// TestGVisorHostNetwork: with runsc's option for it, a pod in a sandbox uses the node's network: it sees the node's
// addresses, serves at the node's localhost, and ports are forwarded to that.
func TestGVisorHostNetwork(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.gvisor.options.network = "host"`,
		`runtime.handlers.gvisor-shim.options.network = "host"`)
	for _, handler := range []string{"gvisor", "gvisor-shim"} {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			// One on the pods' network first: the CNI plugin makes the bridge with it.
			podCfg := k.podConfig()
			own := k.runPod(podCfg, handler)
			out, code := k.outputIn(own, podCfg, "ip -o -4 addr show eth0")
			if ip := k.podStatus(own).GetNetwork().GetIp(); code != 0 || ip == "" || !strings.Contains(out, ip+"/") {
				t.Errorf("a pod with a network of its own: %s is not in %q", ip, out)
			}
			cfg := k.podConfig(func(c *cri.PodSandboxConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
			})
			pod := k.runPod(cfg, handler)
			onNode := func(c *cri.ContainerConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
			}
			port := k.freePort()
			c, _ := k.runIn(pod, cfg, []string{"sh", "-c", fmt.Sprintf("echo I am in %s >/tmp/index.html; exec httpd -f -p "+
				"127.0.0.1:%d -h /tmp", handler, port)}, onNode)
			if dmesg := k.exec(c, "dmesg"); !strings.Contains(dmesg, "gVisor") {
				t.Errorf("dmesg %.200q", dmesg)
			}
			if links := k.exec(c, "ip -o link"); !strings.Contains(links, k.Bridge+":") {
				t.Errorf("the node's bridge is not among %s", links)
			}
			want := "I am in " + handler + "\n"
			k.eventually("it serves at the node's localhost", func() bool {
				r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
				if err != nil {
					return false
				}
				defer r.Body.Close()
				body, err := io.ReadAll(r.Body)
				return err == nil && string(body) == want
			})
			if body := k.forwarded(pod, int32(port)); body != want {
				t.Errorf("forwarded: %q", body)
			}
		})
	}
}

// freePort is a port of the node's localhost that nobody listens at.
func (k *kubelet) freePort() int {
	k.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	k.ok("listen", err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// infraPid is the process of the pod's infra container, which is its sandbox.
func (k *kubelet) infraPid(pod string) int {
	k.Helper()
	r, err := k.Runtime.PodSandboxStatus(k.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
	k.ok("PodSandboxStatus", err)
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.Pid <= 1 {
		k.Fatalf("pid in %q: %v", r.Info, err)
	}
	return info.Pid
}
