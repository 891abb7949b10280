package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/podd-project/podd/oci/cgroups"
)

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}

// runPodIn runs a pod below a cgroup_parent.
func runPodIn(t *testing.T, e *Engine, name, parent, uid string) string {
	t.Helper()
	cfg := podConfig(name)
	cfg.Metadata.Uid = uid
	cfg.Linux.CgroupParent = parent
	id, err := e.RunPod(t.Context(), cfg, "")
	must(t, err)
	return id
}

// TestPodUsage: the pod's own group tells what it uses, where it has one; else its containers do.
func TestPodUsage(t *testing.T) {
	const uid = "7e9d1fb8-0c7a-4b7e-9d55-0123456789ab"
	for name, tt := range map[string]struct {
		parent, group string
		systemd       bool
		children      string // ID and POD stand for the ids
		own           bool
	}{
		"no parent":                {},
		"kubelet, cgroupfs":        {parent: "/kubepods/burstable/pod" + uid, group: "/kubepods/burstable/pod" + uid, children: "podd-ID crio-abc", own: true},
		"kubelet, systemd":         {parent: "/kubepods.slice/kubepods-pod7e9d1fb8_0c7a_4b7e_9d55_0123456789ab.slice", group: "/kubepods.slice/kubepods-pod7e9d1fb8_0c7a_4b7e_9d55_0123456789ab.slice", systemd: true, own: true},
		"its own by what is in it": {parent: "/mine", group: "/mine", children: "podd-ID podd-POD", own: true},
		"shared":                   {parent: "/all", group: "/all", children: "podd-ID podd-other"},
		"system.slice":             {parent: "system.slice", group: "/system.slice", systemd: true, children: "sshd.service podd-ID.scope"},
		"not there":                {parent: "/gone"},
	} {
		t.Run(name, func(t *testing.T) {
			e, f := measuring(t)
			e.cfg.SystemdCgroup = tt.systemd
			pod := runPodIn(t, e, "web", tt.parent, uid)
			one, _ := running(t, e, f, pod, "one")
			two, _ := running(t, e, f, pod, "two")
			f.add(groupOf(pod))
			if tt.group != "" {
				g := f.add(tt.group)
				g.children = strings.Fields(strings.NewReplacer("ID", one, "POD", pod).Replace(tt.children))
			}
			u := e.PodUsage(t.Context(), []string{pod, "absent"}, WantUsage{})[pod]
			if len(u.Containers) != 2 || u.Containers[one].Usage == nil || u.Containers[two].Usage == nil {
				t.Errorf("containers %v", u.Containers)
			}
			if own := u.Path != ""; own != tt.own || own && u.Path != tt.group {
				t.Fatalf("path %q", u.Path)
			}
			checkPodFigures(t, u, tt.own)
		})
	}
}

func checkPodFigures(t *testing.T, u PodUsage, own bool) {
	t.Helper()
	n := uint64(3) // containers, one of them the infra container
	if own {
		n = 1
	}
	if m := u.Usage.Memory; m.Usage != n*100 || m.WorkingSet != n*80 || m.RSS != n*60 || m.PageFaults != n*5 {
		t.Errorf("memory %+v", m)
	}
	if u.Usage.Pids.Current != n*2 || u.Usage.Swap.Usage != n*7 {
		t.Errorf("pids %+v, swap %+v", u.Usage.Pids, u.Usage.Swap)
	}
	if limited := u.Usage.Memory.Limit != cgroups.Unlimited; limited != own {
		t.Errorf("memory limit %d", u.Usage.Memory.Limit)
	}
	if pressure := u.Usage.CPUPressure != nil; pressure != own {
		t.Errorf("pressure %v: it cannot be added up", u.Usage.CPUPressure)
	}
	if u.NanoCores == nil || u.Usage.CPU.Total <= 0 {
		t.Errorf("CPU %+v, rate %v", u.Usage.CPU, u.NanoCores)
	}
}

// TestSharedParentIsLookedAtSeldom: a pod without a group of its own costs nothing at each list.
func TestSharedParentIsLookedAtSeldom(t *testing.T) {
	e, f := measuring(t)
	pod := runPodIn(t, e, "web", "/all", "uid")
	g := f.add("/all")
	g.children = []string{"somebody"}
	for range 5 {
		e.PodUsage(t.Context(), []string{pod}, WantUsage{})
	}
	if n := f.reads("/all"); n != 1 {
		t.Errorf("looked at %d times", n)
	}
}

func TestOnlyReadyPodsAreMeasured(t *testing.T) {
	e, _ := measuring(t)
	pod := mustRunPod(t, e, "web")
	must(t, e.StopPod(t.Context(), pod))
	if got := e.PodUsage(t.Context(), []string{pod}, WantUsage{}); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    1000      10    0    0    0     0          0         0     1000      10    0    0    0     0       0          0
  net1: 18446744073709551615 1 2 3 0 0 0 0 4 5 6 7 0 0 0 0
  eth0:     101     102  103  104    0     0          0         0      201     202  203  204    0     0       0          0
broken: 1 2 3
`

func TestNetworkUsage(t *testing.T) {
	var u NetworkUsage
	u.parse([]byte(netDev))
	want := Interface{Name: "eth0", RxBytes: 101, RxPackets: 102, RxErrors: 103, RxDropped: 104, TxBytes: 201, TxPackets: 202, TxErrors: 203, TxDropped: 204}
	if u.Default == nil || *u.Default != want {
		t.Errorf("default %+v", u.Default)
	}
	if len(u.Others) != 1 || u.Others[0].Name != "net1" || u.Others[0].RxBytes != 1<<64-1 || u.Others[0].TxDropped != 7 {
		t.Errorf("others %+v", u.Others)
	}
	u = NetworkUsage{}
	u.parse([]byte(strings.ReplaceAll(netDev, "eth0", "ens5")))
	if u.Default == nil || u.Default.Name != "net1" || len(u.Others) != 1 || u.Others[0].Name != "ens5" {
		t.Errorf("without eth0: %+v, %+v", u.Default, u.Others)
	}
	u = NetworkUsage{}
	u.parse([]byte(strings.SplitAfter(netDev, "\n")[2]))
	if u.Default != nil || u.Others != nil {
		t.Errorf("loopback alone: %+v", u)
	}
}

// TestHostileInterfaces: what a privileged container makes must not harm the answer for other pods.
func TestHostileInterfaces(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "  x%d: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n", i)
	}
	text.WriteString("\xff\xfe: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n")
	var u NetworkUsage
	u.parse([]byte(text.String()))
	if u.Default == nil || u.Default.Name != "eth0" || len(u.Others) != maxInterfaces {
		t.Errorf("default %v, %d others", u.Default, len(u.Others))
	}
	u = NetworkUsage{}
	u.parse([]byte("\xff: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"))
	if u.Default != nil || len(u.Others) != 0 {
		t.Errorf("got %+v", u)
	}
}

// FuzzNetDev: interfaces have names that containers choose.
func FuzzNetDev(f *testing.F) {
	f.Add([]byte(netDev))
	f.Fuzz(func(t *testing.T, text []byte) {
		var u NetworkUsage
		u.parse(text)
		for _, i := range u.Others {
			if i.Name == "lo" || u.Default == nil || !utf8.ValidString(i.Name) {
				t.Errorf("%+v", u)
			}
		}
	})
}

// TestNetworkGauge: the file is opened once, read from its start each time, and let go.
func TestNetworkGauge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dev")
	must(t, os.WriteFile(path, []byte(netDev), 0o600))
	opened := 0
	g := &networkGauge{open: func() (*os.File, error) { opened++; return os.Open(path) }}
	for range 3 {
		u, err := g.measure(nil, WantUsage{})
		must(t, err)
		if u.Default.RxBytes != 101 {
			t.Errorf("got %+v", u)
		}
	}
	file := g.file
	g.close()
	g.close()
	if _, err := io.ReadAll(file); opened != 1 || err == nil {
		t.Errorf("opened %d times, read after close: %v", opened, err)
	}
	g.open = func() (*os.File, error) { return nil, os.ErrNotExist }
	if _, err := g.measure(nil, WantUsage{}); err == nil {
		t.Error("a namespace that is gone was measured")
	}
}

func TestOpenFiles(t *testing.T) {
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	defer w.Close()
	o := openFiles(os.Getpid(), []int{os.Getpid(), 1 << 30})
	if o.Files == nil || *o.Files < 5 || o.Sockets == nil || *o.Sockets > *o.Files || o.MaxOpenFiles == nil || *o.MaxOpenFiles == 0 {
		t.Errorf("got %+v", o)
	}
	if o := openFiles(0, nil); o.MaxOpenFiles != nil || *o.Files != 0 || *o.Sockets != 0 {
		t.Errorf("nothing: %+v", o)
	}
	if o := openFiles(0, make([]int, maxLookedProcesses+1)); o.Files != nil || o.Sockets != nil {
		t.Errorf("too many processes: %+v", o)
	}
	dir := t.TempDir()
	must(t, os.Symlink("socket:[1]", filepath.Join(dir, "1")))
	must(t, os.Symlink("socket:[2]", filepath.Join(dir, "2")))
	must(t, os.Symlink("pipe:[2]", filepath.Join(dir, "3")))
	if files, sockets := countFiles(dir, 10); files != 3 || sockets != 2 {
		t.Errorf("%d files, %d sockets", files, sockets)
	}
	if files, sockets := countFiles(dir, 0); files != 3 || sockets != 0 {
		t.Errorf("%d files, %d sockets without a look", files, sockets)
	}
}
