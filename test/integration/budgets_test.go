package integration

import (
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// budgetUsage is one of the budgets in the verbose Status.
type budgetUsage struct {
	Name    string `json:"name"`
	Limit   int64  `json:"limit"`
	InUse   int64  `json:"in_use"`
	Peak    int64  `json:"peak"`
	Refused int64  `json:"refused"`
}

// budget returns the state of a budget.
func (k *kubelet) budget(name string) budgetUsage {
	k.Helper()
	r, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{Verbose: true})
	k.ok("Status", err)
	var engine struct {
		Budgets []budgetUsage `json:"budgets"`
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["engine"]), &engine); err != nil {
		k.Fatal(err)
	}
	for _, u := range engine.Budgets {
		if u.Name == name {
			return u
		}
	}
	k.Fatalf("no budget %q in the status", name)
	return budgetUsage{}
}

// peakMemory is the largest resident memory of podd since its start, in MiB.
func (k *kubelet) peakMemory() int {
	k.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(k.Pid()) + "/status")
	k.ok("status of the daemon", err)
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))
	kib, err := strconv.Atoi(m[1])
	k.ok("VmHWM", err)
	return kib >> 10
}

// TestExecOutputBudget: 20 commands in two pods print 16 MB twice at the same time. The output that podd keeps stays
// within the budget, replies that were cut say so, a command that prints little is not affected, and in the end nothing
// is in use.
func TestExecOutputBudget(t *testing.T) {
	t.Parallel()
	k := start(t)
	_, a := k.sleeper()
	_, b := k.sleeper()
	var cut, whole sync.Map
	var all sync.WaitGroup
	// Each sleeps, so that the output of all of them is kept at the same time.
	const print = "head -c 16000000 /dev/zero; head -c 16000000 /dev/zero >&2; sleep 6"
	for i := range 20 {
		all.Go(func() {
			r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{
				ContainerId: []string{a, b}[i%2], Cmd: []string{"sh", "-c", print}, Timeout: 120,
			})
			switch {
			case err != nil:
				k.Errorf("ExecSync: %v", err)
			case len(r.Stdout) < 64<<10 || r.ExitCode != 0:
				k.Errorf("ExecSync: %d bytes, exit code %d, want at least 64 KiB and 0", len(r.Stdout), r.ExitCode)
			case strings.HasSuffix(string(r.Stderr), "see `podd status`\n"):
				cut.Store(i, true)
			default:
				whole.Store(i, true)
			}
		})
	}
	for range 10 {
		if got := k.exec(a, "head -c 60000 /dev/zero"); len(got) != 60000 {
			k.Errorf("a small command: %d bytes, want 60000", len(got))
		}
	}
	all.Wait()
	u := k.budget("output of ExecSync")
	k.Logf("%d replies were cut, %d not; budget %+v; podd needed %d MiB at most", size(&cut), size(&whole), u,
		k.peakMemory())
	if u.Peak == 0 || u.Peak > 64<<20 {
		k.Errorf("peak = %d, want above 0 and at most %d", u.Peak, 64<<20)
	}
	if u.Refused == 0 || size(&cut) == 0 {
		k.Errorf("%d refused, %d replies say that they were cut, want some", u.Refused, size(&cut))
	}
	k.eventually("the budget is free", func() bool { return k.budget("output of ExecSync").InUse == 0 })
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}

// TestDeafServer: through one session, 1,000 connections are made to a server in a pod that does not accept. Threads
// and descriptors of podd stay within the budget, connections end by themselves, and another pod's port is forwarded.
func TestDeafServer(t *testing.T) {
	t.Parallel()
	k := start(t, `runtime.stats_interval="1h"`)
	echo, _ := k.echoPod()
	deaf, cfg := k.pod(func(c *cri.PodSandboxConfig) {
		c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1"} // the length of the queue
	})
	id, _ := k.runIn(deaf, cfg, []string{"sh", "-c", "nc -ll -p 80 -e cat & echo $! > /tmp/pid; wait"})
	k.eventually("the pod listens", func() bool { return k.exec(id, "grep -c ' 0A ' /proc/net/tcp; true") != "0" })
	k.exec(id, "kill -STOP $(cat /tmp/pid)")
	before := k.descriptors()
	// The library ends the session at the first connection that fails, so its error is not an error of the test.
	_ = k.forward(1, deaf, func(address string) error {
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for range 1000 {
			c, err := net.Dial("tcp", address)
			k.ok("connect to the forwarded port", err)
			conns = append(conns, c)
		}
		k.eventually("hundreds of connections wait for one of the pod's turns", func() bool {
			return k.budget("forwarded connections").Peak > 300 &&
				k.budget("forwarded connections being established").Peak == 32
		})
		if n := k.threads(); n > 100 {
			k.Errorf("threads = %d, want at most 100", n)
		}
		if n := k.descriptors(); n > before+100 {
			k.Errorf("descriptors = %d, want at most 100 more than the %d before", n, before)
		}
		began := time.Now()
		err := k.forward(0, echo, func(address string) error { return checkEcho(address, "hello") })
		k.ok("forward to another pod", err)
		k.Logf("%d threads; forwarding to another pod took %v", k.threads(), time.Since(began))
		return nil
	})
	if u := k.budget("forwarded connections"); u.Peak > 512+1 {
		k.Errorf("forwarded connections = %+v, want at most 512 of one pod", u)
	}
	k.eventually("nothing is in use", func() bool {
		return k.budget("forwarded connections").InUse+k.budget("forwarded connections being established").InUse == 0
	})
}

// threads returns the number of podd's threads.
func (k *kubelet) threads() int {
	k.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(k.Pid()) + "/task")
	k.ok("threads of the daemon", err)
	return len(entries)
}

// descriptors returns the number of podd's open files.
func (k *kubelet) descriptors() int {
	k.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(k.Pid()) + "/fd")
	k.ok("descriptors of the daemon", err)
	return len(entries)
}

// TestIdleStreamingConnections: a user without privileges keeps 300 idle connections to the streaming server open, and
// renews them all the time. Commands are run nevertheless.
func TestIdleStreamingConnections(t *testing.T) {
	t.Parallel()
	k := start(t)
	_, id := k.sleeper()
	at, err := url.Parse(k.execURL(id, false, "true"))
	k.ok("URL", err)
	stop := k.flood(at.Host, 65534, 300)
	defer stop()
	k.eventually("connections are closed", func() bool { return k.budget("pending streaming connections").Refused > 300 })
	for i := range 20 {
		var out strings.Builder
		err := k.streamTo(i, k.execURL(id, false, "echo", "hi"),
			remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: io.Discard})
		if err != nil || out.String() != "hi\n" {
			k.Errorf("exec %d: %v, output %q, want \"hi\\n\"", i, err, out.String())
		}
	}
}

// flood keeps n idle connections to the address open as the user, and opens one of them again every millisecond.
func (k *kubelet) flood(address string, uid, n int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // not unlocked: the thread has the uid of the user, and ends with the goroutine
		_, _ = unix.SetfsuidRetUid(uid)
		conns := make([]net.Conn, n)
		for i := 0; ; i = (i + 1) % n {
			select {
			case <-end:
				for _, c := range conns {
					if c != nil {
						c.Close()
					}
				}
				return
			case <-time.After(time.Millisecond):
			}
			if conns[i] != nil {
				conns[i].Close()
			}
			conns[i], _ = net.Dial("tcp", address)
		}
	}()
	return func() { close(end); <-ended }
}
