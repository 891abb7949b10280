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

	"github.com/podd-project/podd/test/sample"
	"google.golang.org/grpc/codes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// mixed are the handlers of one node, and whether the pods of each have a kernel of their own.
var mixed = []struct {
	handler   string
	ownKernel bool
}{{"runc", false}, {"crun", false}, {"gvisor", true}, {"gvisor-shim", true}, {"vm", true}}

// TestAutoHandler: with default_handler = "auto", pods without a RuntimeClass run with crun, and with runc on a node
// that has no usable crun.
func TestAutoHandler(t *testing.T) {
	t.Parallel()
	for want, crun := range map[string]string{"crun": "crun", "runc": "/absent/crun"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			k := start(t, `runtime.default_handler = "auto"`, "runtime.handlers.crun.path = "+strconv.Quote(crun))
			_, id := k.sleeper()
			if _, err := os.Stat(k.Path("run", "runtimes", want, id)); err != nil {
				t.Errorf("the container does not run with %s: %v", want, err)
			}
		})
	}
}

// TestMixed runs pods of all handlers on one node and one network, and tests each as kubectl uses it.
func TestMixed(t *testing.T) {
	t.Parallel()
	k := start(t)
	pods := map[string]*mixedPod{}
	for _, h := range mixed {
		pods[h.handler] = k.mixedPod(h.handler)
	}
	t.Run("kernel", func(t *testing.T) {
		k := k.withT(t)
		host, err := os.ReadFile("/proc/sys/kernel/osrelease")
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range mixed {
			release := strings.TrimSpace(k.exec(pods[h.handler].web, "uname -r"))
			if own := release != strings.TrimSpace(string(host)); own != h.ownKernel {
				t.Errorf("%s: kernel = %s, host's = %s, own kernel = %v, want %v", h.handler, release, host, own, h.ownKernel)
			}
			gvisor := strings.HasPrefix(h.handler, "gvisor")
			if dmesg := k.exec(pods[h.handler].web, "dmesg || true"); gvisor != strings.Contains(dmesg, "gVisor") {
				t.Errorf("%s: dmesg = %.200q, want gVisor in it: %v", h.handler, dmesg, gvisor)
			}
		}
	})
	t.Run("network", func(t *testing.T) {
		k := k.withT(t)
		for from, p := range pods {
			for to, q := range pods {
				if got, want := k.exec(p.web, "wget -q -O - http://"+q.ip+"/"), "I am "+to+"\n"; got != want {
					t.Errorf("response from %s to %s = %q, want %q", to, from, got, want)
				}
				if from != to { // in gVisor busybox's ping gets no reply from its own address
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
				t.Run(h.handler, func(t *testing.T) { c.test(k.withT(t), pods[h.handler]) })
			}
		})
	}
	t.Run("namespace of the node", func(t *testing.T) {
		k := k.withT(t)
		for _, h := range mixed {
			if h.ownKernel {
				k.refusesNodesNamespaces(h.handler)
			}
		}
		_, err := k.Runtime.RunPodSandbox(k.ctx(),
			&cri.RunPodSandboxRequest{Config: k.podConfig(), RuntimeHandler: "unheard-of"})
		k.refused("RunPodSandbox", err, "[runc crun gvisor", codes.InvalidArgument, codes.NotFound)
	})
}

// refusesNodesNamespaces fails the test unless the handler refuses pods in each namespace of the node.
func (k *kubelet) refusesNodesNamespaces(handler string) {
	k.Helper()
	const node = cri.NamespaceMode_NODE
	for name, change := range map[string]func(*cri.NamespaceOption){
		"network": func(o *cri.NamespaceOption) { o.Network = node },
		"PID":     func(o *cri.NamespaceOption) { o.Pid = node },
		"IPC":     func(o *cri.NamespaceOption) { o.Ipc = node },
	} {
		cfg := k.podConfig(func(c *cri.PodSandboxConfig) { change(c.Linux.SecurityContext.NamespaceOptions) })
		_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
		k.refused(handler+" in the node's "+name+" namespace", err, "kernel of their own", codes.InvalidArgument)
	}
}

// withT returns the kubelet for a subtest that uses the pods of its parent.
func (k *kubelet) withT(t *testing.T) *kubelet {
	sub := *k
	sub.TB = t
	return &sub
}

// mixedPod is a pod with two containers: web is a web server, cat copies its stdin to its stdout.
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
		k.Errorf("runtime handler = %q, want %q", st.GetRuntimeHandler(), handler)
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

// mixedShare: the containers of a pod share its network, hostname and /dev/shm, but not their processes.
func mixedShare(k *kubelet, p *mixedPod) {
	if got := k.exec(p.cat, "hostname"); got != p.cfg.Hostname+"\n" {
		k.Errorf("hostname = %q, want %q", got, p.cfg.Hostname+"\n")
	}
	if got := k.exec(p.cat, "wget -q -O - http://127.0.0.1/"); !strings.HasPrefix(got, "I am ") {
		k.Errorf("response of the other container's server = %q, want \"I am ...\"", got)
	}
	k.exec(p.web, "echo shared >/dev/shm/x")
	if got := k.exec(p.cat, "cat /dev/shm/x"); got != "shared\n" {
		k.Errorf("/dev/shm/x = %q, want %q", got, "shared\n")
	}
	if got := k.exec(p.cat, "ps -o args"); strings.Contains(got, "sleep 10000") {
		k.Errorf("processes = %s, want none of the other container", got)
	}
}

func mixedExec(k *kubelet, p *mixedPod) {
	r, err := k.Runtime.ExecSync(k.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}, Timeout: 30})
	k.ok("ExecSync", err)
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 3 {
		k.Errorf("ExecSync: stdout = %q, stderr = %q, exit code = %d, want \"out\\n\", \"err\\n\", 3", r.Stdout, r.Stderr,
			r.ExitCode)
	}
	_, err = k.Runtime.ExecSync(k.ctx(),
		&cri.ExecSyncRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", "sleep 4322 & exec sleep 4321"}, Timeout: 1})
	k.refused("ExecSync past its timeout", err, "", codes.DeadlineExceeded)
	k.eventually("the processes of the timed out command are gone", func() bool {
		left := k.exec(p.web, "ps -o args")
		// gVisor's shim kills one process and does not report its pid in the sandbox: see oci/shim/README.md.
		return !strings.Contains(left, "sleep 4321") && (p.handler == "gvisor-shim" || !strings.Contains(left, "sleep 4322"))
	})
	// runsc fails if a command with a terminal exits before runsc has checked that it started: see contrib/decisions/0008.
	const command = "read x; echo got $x; test -t 0 && echo terminal; sleep 0.5"
	for _, tty := range []bool{false, true} {
		e, err := k.Runtime.Exec(k.ctx(), &cri.ExecRequest{ContainerId: p.web, Cmd: []string{"sh", "-c", command},
			Stdin: true, Stdout: true, Stderr: !tty, Tty: tty})
		k.ok("Exec", err)
		out, err := k.stream(e.Url, "hello\n", tty)
		k.ok("exec session", err)
		if isTTY := strings.Contains(out, "terminal"); !strings.Contains(out, "got hello") || isTTY != tty {
			k.Errorf("exec with tty %v: output = %q, want \"got hello\", and \"terminal\" only with a tty", tty, out)
		}
	}
}

// stream runs one session of exec or attach: it sends input, and returns the output when the session has ended.
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

// mixedAttach: an attached client reads back what it writes to the stdin of cat.
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
		k.Errorf("read from the attached container: %q, %v, want %q", got, err, want)
	}
}

func mixedLogs(k *kubelet, p *mixedPod) {
	got := k.logText(p.cfg, p.webCfg)
	if !strings.Contains(got, "serving\n") || !strings.Contains(got, "to err\n") {
		k.Errorf("log = %q, want \"serving\\n\" and \"to err\\n\" in it", got)
	}
	path := filepath.Join(p.cfg.LogDirectory, p.webCfg.LogPath)
	k.ok("rotate", os.Rename(path, path+".1"))
	_, err := k.Runtime.ReopenContainerLog(k.ctx(), &cri.ReopenContainerLogRequest{ContainerId: p.web})
	k.ok("ReopenContainerLog", err)
	if _, err := os.Stat(path); err != nil {
		k.Errorf("log file after rotation: %v, want it to exist", err)
	}
}

func mixedForward(k *kubelet, p *mixedPod) {
	if body := k.getForwarded(p.id, 80); !strings.HasPrefix(body, "I am ") {
		k.Errorf("response over the forwarded port = %q, want \"I am ...\"", body)
	}
}

// getForwarded forwards the pod's port and returns the response to an HTTP GET over it.
func (k *kubelet) getForwarded(pod string, port int32) string {
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
		k.Fatal("port forwarding not ready after a minute, want it ready")
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

// mixedStats: CPU and memory usage are reported for a container and for its pod.
func mixedStats(k *kubelet, p *mixedPod) {
	used := func() (cpu, memory uint64) {
		s := k.stats(p.web)
		return s.GetCpu().GetUsageCoreNanoSeconds().GetValue(), s.GetMemory().GetWorkingSetBytes().GetValue()
	}
	before, _ := used()
	// Repeated, because runsc divides the sandbox's usage among the containers by their shares so far: the usage of one
	// falls when another one works.
	k.eventually("CPU usage has grown by 10ms and memory usage is not 0", func() bool {
		k.exec(p.web, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		cpu, memory := used()
		return cpu > before+uint64(10*time.Millisecond) && memory > 0
	})
	r, err := k.Runtime.PodSandboxStats(k.ctx(), &cri.PodSandboxStatsRequest{PodSandboxId: p.id})
	k.ok("PodSandboxStats", err)
	linux := r.GetStats().GetLinux()
	if n := len(linux.GetContainers()); n != 2 {
		k.Errorf("containers in the pod's stats = %d, want 2", n)
	}
	if linux.GetCpu().GetUsageCoreNanoSeconds().GetValue() == 0 || linux.GetMemory().GetUsageBytes().GetValue() == 0 {
		k.Errorf("pod's usage = %+v, %+v, want CPU and memory above 0", linux.GetCpu(), linux.GetMemory())
	}
}

// mixedStop: containers exit by their SIGTERM handler, by themselves or by SIGKILL; the others keep running.
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
		k.Errorf("exit code after SIGTERM = %d, want 5", st.ExitCode)
	}
	k.removeContainer(trap)
	ended, _ := k.runIn(p.id, p.cfg, []string{"sh", "-c", "exit 7"})
	if st := k.exited(ended); st.ExitCode != 7 || st.Reason != "Error" {
		k.Errorf("exit code = %d, reason = %s, want 7, Error", st.ExitCode, st.Reason)
	}
	stubborn, _ := k.runIn(p.id, p.cfg, []string{"sleep", "10000"})
	k.stopContainer(stubborn, 0)
	if st := k.container(stubborn); st.ExitCode != 137 {
		k.Errorf("exit code after SIGKILL = %d, want 137", st.ExitCode)
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
	gate := k.httpGate()
	// Two containers of each handler: one exits while no podd runs, the other afterwards.
	away, later, started := map[string]string{}, map[string]string{}, map[string]int64{}
	for _, h := range mixed {
		p := pods[h.handler]
		away[h.handler], _ = k.runIn(p.id, p.cfg, []string{"sh", "-c", "wget -q -O - " + gate.url + h.handler + "; exit 8"})
		later[h.handler], _ = k.runIn(p.id, p.cfg,
			[]string{"sh", "-c", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 9"})
		started[h.handler] = k.container(p.web).StartedAt
	}
	for range mixed {
		<-gate.arrived
	}
	k.ok("kill", k.Kill9())
	close(gate.open) // only the monitor, or the shim, sees this exit
	k.ok("start", k.Start(k.ctx()))
	for _, h := range mixed {
		t.Run(h.handler, func(t *testing.T) {
			k := k.withT(t)
			p := pods[h.handler]
			if st := k.podStatus(p.id); st.State != cri.PodSandboxState_SANDBOX_READY || st.GetNetwork().GetIp() != p.ip {
				t.Errorf("pod = %s with IP %s, want ready with %s", st.State, st.GetNetwork().GetIp(), p.ip)
			}
			if st := k.container(p.web); st.State != cri.ContainerState_CONTAINER_RUNNING || st.StartedAt != started[h.handler] {
				t.Errorf("container = %s, started at %d, want running since %d", st.State, st.StartedAt, started[h.handler])
			}
			k.exec(later[h.handler], "(sleep 1; touch /tmp/end) >/dev/null 2>&1 &") // an exec ends with its container
			for id, want := range map[string]int32{away[h.handler]: 8, later[h.handler]: 9} {
				if st := k.exited(id); st.ExitCode != want {
					t.Errorf("exit code of container %s = %d, want %d", id, st.ExitCode, want)
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

// httpGate is an HTTP server on the node. A request is reported on arrived and answered when open is closed.
type httpGate struct {
	url           string
	arrived, open chan struct{}
}

// httpGate starts one at the pods' gateway, for one request of each handler.
func (k *kubelet) httpGate() httpGate {
	k.Helper()
	bridge, err := net.InterfaceByName(k.Bridge)
	k.ok("the pods' bridge", err)
	addrs, err := bridge.Addrs()
	k.ok("the pods' bridge", err)
	i := slices.IndexFunc(addrs, func(a net.Addr) bool { ip, ok := a.(*net.IPNet); return ok && ip.IP.To4() != nil })
	if i < 0 {
		k.Fatalf("addresses of the pods' bridge = %v, want an IPv4 address", addrs)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(addrs[i].(*net.IPNet).IP.String(), "0"))
	k.ok("listen", err)
	g := httpGate{"http://" + l.Addr().String() + "/", make(chan struct{}, len(mixed)), make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.arrived <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
	})}
	go server.Serve(l)
	k.Cleanup(func() { server.Close() })
	return g
}

// TestSandboxKilled kills a pod's sandbox process, or its infra container, which has the first process of the pod's PID
// namespace. The pod is then not ready, its containers have exited, and it can be removed.
func TestSandboxKilled(t *testing.T) {
	t.Parallel()
	k := start(t, runcShim()...)
	for _, handler := range sample.Some(t, "runc", "crun", "runc-shim", "gvisor", "gvisor-shim") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			p := k.mixedPod(handler, func(c *cri.PodSandboxConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Pid = cri.NamespaceMode_POD
			})
			k.ok("kill the infra container", syscall.Kill(k.infraPid(p.id), syscall.SIGKILL))
			k.eventually("pod is not ready",
				func() bool { return k.podStatus(p.id).State == cri.PodSandboxState_SANDBOX_NOTREADY })
			for _, c := range []string{p.web, p.cat} {
				if st := k.exited(c); st.ExitCode < 128 { // gVisor's shim reports 128
					t.Errorf("exit code = %d, want 128 or more, as of a killed process", st.ExitCode)
				}
			}
			k.stopPod(p.id)
			k.removePod(p.id)
		})
	}
}

// TestGVisorHostNetwork: with runsc's option network=host, a pod in a sandbox uses the node's network: it has the
// node's addresses, serves at the node's localhost, and ports are forwarded to that.
func TestGVisorHostNetwork(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.handlers.gvisor.options.network = "host"`,
		`runtime.handlers.gvisor-shim.options.network = "host"`)
	for _, handler := range sample.Some(t, "gvisor", "gvisor-shim") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			// A pod on the pods' network first, so that the CNI plugin creates the bridge.
			podCfg := k.podConfig()
			own := k.runPod(podCfg, handler)
			out, code := k.outputIn(own, podCfg, "ip -o -4 addr show eth0")
			if ip := k.podStatus(own).GetNetwork().GetIp(); code != 0 || ip == "" || !strings.Contains(out, ip+"/") {
				t.Errorf("pod with a network of its own: IP = %s, exit code = %d, want 0 and the IP in %q", ip, code, out)
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
				t.Errorf("dmesg = %.200q, want gVisor in it", dmesg)
			}
			if links := k.exec(c, "ip -o link"); !strings.Contains(links, k.Bridge+":") {
				t.Errorf("links = %s, want the node's bridge %s among them", links, k.Bridge)
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
			if body := k.getForwarded(pod, int32(port)); body != want {
				t.Errorf("response over the forwarded port = %q, want %q", body, want)
			}
		})
	}
}

// freePort returns a port of the node's localhost on which nothing listens.
func (k *kubelet) freePort() int {
	k.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	k.ok("listen", err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// infraPid returns the pid of the pod's infra container, or of its sandbox.
func (k *kubelet) infraPid(pod string) int {
	k.Helper()
	r, err := k.Runtime.PodSandboxStatus(k.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: pod, Verbose: true})
	k.ok("PodSandboxStatus", err)
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(r.Info["info"]), &info); err != nil || info.Pid <= 1 {
		k.Fatalf("pid in info %q: %v, %d, want more than 1", r.Info, err, info.Pid)
	}
	return info.Pid
}
