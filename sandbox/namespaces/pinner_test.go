package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

var userMap = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}

func TestPinMakesNewNamespacesAndSetsThemUp(t *testing.T) {
	for _, user := range []bool{false, true} {
		t.Run(fmt.Sprintf("user=%v", user), func(t *testing.T) {
			p, dir := newPinner(t), filepath.Join(t.TempDir(), "pins")
			r := allPins(dir)
			if user {
				r.User, r.UIDs, r.GIDs = filepath.Join(dir, "user"), userMap, userMap
			}
			r.Sysctls = map[string]string{
				"net.ipv4.ip_forward":       "1",
				"net/ipv4/ping_group_range": "0 0",
				"kernel.shmmax":             "12345678",
				"kernel.sem":                "250 32000 32 200",
				"fs.mqueue.msg_max":         "77",
				"kernel.domainname":         "example.test",
			}
			if user { // group 0 of the node is not mapped
				r.Sysctls["net/ipv4/ping_group_range"] = "1 2"
			}
			if err := p.Pin(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			checkPinned(t, r)
			inside(t, r, func() error {
				return errors.Join(
					expectFile("/proc/sys/net/ipv4/ip_forward", "1"),
					expectFile("/proc/sys/kernel/shmmax", "12345678"),
					expectFile("/proc/sys/kernel/sem", "250 32000 32 200"),
					expectFile("/proc/sys/fs/mqueue/msg_max", "77"),
					expectFile("/proc/sys/kernel/domainname", "example.test"),
					expectFile("/proc/sys/kernel/hostname", "pod-0"))
			})
			if err := p.Unpin(t.Context(), r.Net, r.IPC, r.UTS, filepath.Join(dir, "user")); err != nil {
				t.Fatal(err)
			}
			empty(t, dir)
		})
	}
}

// checkPinned checks that every pin is a namespace of its own, owned by the pod's user namespace if it has one.
func checkPinned(t *testing.T, r Request) {
	t.Helper()
	for _, k := range r.kinds() {
		mine, theirs := inode(t, "/proc/self/ns/"+k.name), inode(t, k.path)
		if mine == theirs {
			t.Errorf("%s is the node's own namespace", k.path)
		}
		if k.name == "user" {
			continue
		}
		want := inode(t, "/proc/self/ns/user")
		if r.User != "" {
			want = inode(t, r.User)
		}
		if got := owner(t, k.path); got != want {
			t.Errorf("%s namespace belongs to user namespace %d, want %d", k.name, got, want)
		}
	}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st.Ino
}

// owner returns the inode of the user namespace that owns the namespace at path.
func owner(t *testing.T, path string) uint64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestPinAnySubset(t *testing.T) {
	p := newPinner(t)
	for bits := range 8 {
		dir := filepath.Join(t.TempDir(), "pins")
		var r Request
		for i, path := range []*string{&r.Net, &r.IPC, &r.UTS} {
			if bits&(1<<i) != 0 {
				*path = filepath.Join(dir, fmt.Sprint(i))
			}
		}
		if err := p.Pin(t.Context(), r); err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		pins, err := p.Pinned(dir)
		if err != nil || len(pins) != len(r.kinds()) {
			t.Errorf("Pinned = %v, %v after %+v", pins, err, r)
		}
		if err := p.Unpin(t.Context(), pins...); err != nil {
			t.Error(err)
		}
		empty(t, dir)
	}
}

func TestPinIsAllOrNothing(t *testing.T) {
	noRoot := []specs.LinuxIDMapping{{ContainerID: 5, HostID: 100000, Size: 10}}
	tests := []struct {
		name   string
		change func(t *testing.T, p *Pinner, r *Request)
		want   string
	}{
		{"sysctl of another kernel", func(_ *testing.T, _ *Pinner, r *Request) {
			r.Sysctls = map[string]string{"net.ipv4.no_such_thing": "1"}
		}, "this kernel has no such sysctl"},
		{"value the kernel refuses", func(_ *testing.T, _ *Pinner, r *Request) {
			r.Sysctls = map[string]string{"net.ipv4.ip_forward": "many"}
		}, "refuses the value"},
		{"pin directory is a file", func(t *testing.T, _ *Pinner, r *Request) {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			r.UTS = filepath.Join(file, "uts")
		}, "not a directory"},
		{"no holder", func(_ *testing.T, p *Pinner, r *Request) {
			p.holder = "/nonexistent/pause"
			r.User, r.UIDs, r.GIDs = filepath.Join(filepath.Dir(r.Net), "user"), userMap, userMap
		}, "no such file"},
		{"holder not configured", func(_ *testing.T, p *Pinner, r *Request) {
			p.holder = ""
			r.User, r.UIDs, r.GIDs = filepath.Join(filepath.Dir(r.Net), "user"), userMap, userMap
		}, "needs a holder program"},
		{"sysctl of a user namespace without root", func(_ *testing.T, _ *Pinner, r *Request) {
			r.User, r.UIDs, r.GIDs = filepath.Join(filepath.Dir(r.Net), "user"), noRoot, noRoot
			r.Sysctls = map[string]string{"kernel.shmmax": "4096"}
		}, "maps no root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := newPinner(t), filepath.Join(t.TempDir(), "pins")
			r := allPins(dir)
			tt.change(t, p, &r)
			err := p.Pin(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Pin = %v, want something with %q", err, tt.want)
			}
			empty(t, dir)
		})
	}
}

func TestPinRefusesBadRequestsUntouched(t *testing.T) {
	long, pin := strings.Repeat("a", 65), filepath.Join(t.TempDir(), "x")
	tests := []struct {
		name string
		r    Request
	}{
		{"relative path", Request{Net: "net"}},
		{"dot dot", Request{Net: "/tmp/../etc/passwd"}},
		{"root", Request{Net: "/"}},
		{"nul", Request{Net: "/tmp/a\x00b"}},
		{"one file for two", Request{Net: pin, IPC: pin}},
		{"maps without user", Request{Net: pin, UIDs: userMap}},
		{"user without maps", Request{User: pin}},
		{"user without gids", Request{User: pin, UIDs: userMap}},
		{"empty map", Request{User: pin, UIDs: []specs.LinuxIDMapping{{HostID: 1}}, GIDs: userMap}},
		{
			"map overflows", Request{User: pin, UIDs: []specs.LinuxIDMapping{{HostID: 4294967295, Size: 2}}, GIDs: userMap},
		},
		{
			"maps overlap inside",
			Request{
				User: pin, UIDs: userMap,
				GIDs: append([]specs.LinuxIDMapping{{ContainerID: 10, HostID: 1, Size: 1}}, userMap...),
			},
		},
		{
			"maps overlap outside",
			Request{
				User: pin, UIDs: userMap,
				GIDs: append([]specs.LinuxIDMapping{{ContainerID: 70000, HostID: 100001, Size: 1}}, userMap...),
			},
		},
		{"too many maps", Request{User: pin, UIDs: make([]specs.LinuxIDMapping, 341), GIDs: userMap}},
		{"hostname of the node", Request{Net: pin, Hostname: "pod"}},
		{"hostname too long", Request{UTS: pin, Hostname: long}},
		{"hostname with newline", Request{UTS: pin, Hostname: "a\nb"}},
		{"sysctl of the node", Request{Net: pin, Sysctls: map[string]string{"kernel.core_pattern": "|/bin/evil"}}},
	}
	p := New("")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := p.Pin(t.Context(), tt.r); !errdefs.IsInvalidArgument(err) {
				t.Errorf("Pin = %v, want an invalid argument", err)
			}
			if _, err := os.Lstat(pin); err == nil {
				t.Error("Pin of an invalid request created a pin file")
			}
		})
	}
}

func TestPinWithNothingToCreate(t *testing.T) {
	if err := New("").Pin(t.Context(), Request{}); err != nil {
		t.Error(err)
	}
}

func TestPinOverLeftoversOfACrash(t *testing.T) {
	tests := []struct {
		name  string
		leave func(t *testing.T, p *Pinner, path string)
	}{
		{"file without mount", func(t *testing.T, _ *Pinner, path string) {
			if err := createPinFile(path); err != nil {
				t.Fatal(err)
			}
		}},
		{"mounted", func(t *testing.T, p *Pinner, path string) {
			if err := p.Pin(t.Context(), Request{Net: path}); err != nil {
				t.Fatal(err)
			}
		}},
		{"mounted twice", func(t *testing.T, p *Pinner, path string) {
			if err := p.Pin(t.Context(), Request{Net: path}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount("/proc/self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, dir := newPinner(t), t.TempDir()
			r := allPins(dir)
			tt.leave(t, p, r.Net)
			if err := p.Pin(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			checkPinned(t, r)
			if err := p.Unpin(t.Context(), r.Net, r.IPC, r.UTS); err != nil {
				t.Error(err)
			}
			empty(t, dir)
		})
	}
}

func TestCancelled(t *testing.T) {
	p, dir := newPinner(t), filepath.Join(t.TempDir(), "pins")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := allPins(dir)
	if err := p.Pin(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("Pin = %v, want canceled", err)
	}
	if err := p.Unpin(ctx, r.Net); !errors.Is(err, context.Canceled) {
		t.Errorf("Unpin = %v, want canceled", err)
	}
	empty(t, dir)
}

// afterN is a context that ends when it has been asked for its error n times: it cancels Pin at each of its steps.
type afterN struct {
	context.Context
	n int
}

func (c *afterN) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

func TestCancelledAtEveryStepLeavesNothing(t *testing.T) {
	p, dir := newPinner(t), filepath.Join(t.TempDir(), "pins")
	r := allPins(dir)
	r.User, r.UIDs, r.GIDs = filepath.Join(dir, "user"), userMap, userMap
	r.Sysctls = map[string]string{"net.ipv4.ip_forward": "1", "kernel.shmmax": "4096"}
	for n := 0; ; n++ {
		err := p.Pin(&afterN{t.Context(), n}, r)
		if err == nil {
			if n < 5 {
				t.Errorf("Pin asked its context only %d times", n)
			}
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("step %d: %v", n, err)
		}
		empty(t, dir)
	}
	if err := p.Unpin(t.Context(), r.User, r.Net, r.IPC, r.UTS); err != nil {
		t.Error(err)
	}
}

func TestUnpinIsIdempotentAndCareful(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	file, link, sub := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "sub")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, sub} {
		if err := p.Unpin(t.Context(), path); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("Unpin(%s) = %v, want a failed precondition", path, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was removed", path)
		}
	}
	r := Request{Net: filepath.Join(dir, "net")}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	// The bad path does not keep the good one from going.
	if err := p.Unpin(t.Context(), file, r.Net); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Unpin = %v", err)
	}
	if _, err := os.Lstat(r.Net); err == nil {
		t.Error("pin file exists after Unpin")
	}
	for range 2 {
		if err := p.Unpin(t.Context(), r.Net, filepath.Join(dir, "absent", "too")); err != nil {
			t.Errorf("Unpin of an absent pin: %v", err)
		}
	}
}

func TestPinnedOfAnAbsentDirectory(t *testing.T) {
	if pins, err := New("").Pinned(filepath.Join(t.TempDir(), "absent")); pins != nil || err != nil {
		t.Errorf("Pinned = %v, %v", pins, err)
	}
}

// TestUnpinReachesOtherMountNamespaces is about a node whose mounts are shared, as systemd makes them: services with
// mount namespaces of their own get a copy of each pin, and one that has cut the connection keeps it.
func TestUnpinReachesOtherMountNamespaces(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	if err := unix.Mount("pins", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	slave := bystander(t, "slave")
	r := Request{Net: filepath.Join(dir, "net"), IPC: filepath.Join(dir, "ipc")}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	private := bystander(t, "private")
	held := func(pid string) (n int) {
		for _, m := range mounts(t, pid) {
			if strings.Contains(m, dir) {
				n++
			}
		}
		return n
	}
	if held(slave) != 2 || held(private) != 2 {
		t.Fatalf("the others see %d and %d pins, so the test proves nothing", held(slave), held(private))
	}
	watch := watchNetns(t, r.Net)
	if err := p.Unpin(t.Context(), r.Net, r.IPC); err != nil {
		t.Fatal(err)
	}
	if held(slave) != 0 || held(private) != 0 {
		t.Errorf("the others still hold %d and %d pins", held(slave), held(private))
	}
	watch()
}

// bystander starts a process with a mount namespace of its own and returns its pid.
func bystander(t *testing.T, propagation string) string {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--propagation", propagation, "sh", "-c", "echo ready; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(cmd.Process.Pid)
}

// watchNetns puts one end of a veth pair into the namespace; the kernel deletes both ends when it really ends. The
// returned function waits for that.
func watchNetns(t *testing.T, path string) (wait func()) {
	t.Helper()
	name := fmt.Sprintf("pdw%d", os.Getpid()%100000)
	ns, err := netns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "inside", PeerNamespace: netlink.NsFd(ns)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(name); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	return func() {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			if _, err := netlink.LinkByName(name); errors.As(err, new(netlink.LinkNotFoundError)) {
				return
			}
		}
		t.Error("the network namespace exists after Unpin")
	}
}

func TestManyPinsAtOnce(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			r := allPins(filepath.Join(dir, fmt.Sprint(i)))
			r.Hostname = fmt.Sprintf("pod-%d", i)
			if i%4 == 0 {
				r.User, r.UIDs, r.GIDs = filepath.Join(dir, fmt.Sprint(i), "user"), userMap, userMap
			}
			r.Sysctls = map[string]string{"kernel.shmmax": fmt.Sprint(4096 + i)}
			if err := p.Pin(t.Context(), r); err != nil {
				t.Error(err)
				return
			}
			inside(t, r, func() error {
				return errors.Join(expectFile("/proc/sys/kernel/hostname", r.Hostname),
					expectFile("/proc/sys/kernel/shmmax", fmt.Sprint(4096+i)))
			})
			if err := p.Unpin(t.Context(), r.Net, r.IPC, r.UTS, filepath.Join(dir, fmt.Sprint(i), "user")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestPinDoesNotChangeTheProcess(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	hostname, err := os.ReadFile("/proc/sys/kernel/hostname")
	if err != nil {
		t.Fatal(err)
	}
	r := allPins(dir)
	r.User, r.UIDs, r.GIDs = filepath.Join(dir, "user"), userMap, userMap
	r.Sysctls = map[string]string{"kernel.shmmax": "4096"}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := expectFile("/proc/sys/kernel/hostname", strings.TrimSpace(string(hostname))); err != nil {
		t.Error(err)
	}
	if d, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || d != 1 {
		t.Errorf("dumpable after a sysctl was set as another user = %d, %v, want 1", d, err)
	}
	if err := p.Unpin(t.Context(), r.User, r.Net, r.IPC, r.UTS); err != nil {
		t.Error(err)
	}
}

// TestThreadsEnd: every Pin uses up a thread or two; they must end, as must the ones that sit on the main thread.
func TestThreadsEnd(t *testing.T) {
	p, dir := newPinner(t), t.TempDir()
	r := allPins(dir)
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(tasks)
	}
	before := threads()
	for range 200 {
		if err := p.Pin(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Unpin(t.Context(), r.Net, r.IPC, r.UTS); err != nil {
		t.Fatal(err)
	}
	if after := threads(); after > before+20 {
		t.Errorf("%d threads after 200 pins, %d before", after, before)
	}
}

func BenchmarkPinUnpin(b *testing.B) {
	for _, user := range []bool{false, true} {
		b.Run(fmt.Sprintf("user=%v", user), func(b *testing.B) {
			p, dir := newPinner(b), b.TempDir()
			r := allPins(dir)
			paths := []string{r.Net, r.IPC, r.UTS}
			if user {
				r.User, r.UIDs, r.GIDs = filepath.Join(dir, "user"), userMap, userMap
				paths = append(paths, r.User)
			}
			for b.Loop() {
				if err := p.Pin(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				if err := p.Unpin(b.Context(), paths...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPin is what a pod waits for: the pins are taken away off the clock.
func BenchmarkPin(b *testing.B) {
	for _, c := range []struct {
		name string
		of   func(all Request) Request
	}{
		{"net", func(all Request) Request { return Request{Net: all.Net} }},
		{"net, claimed", func(all Request) Request {
			return Request{Net: all.Net, Claim: filepath.Join(filepath.Dir(all.Net), "claim", "net")}
		}},
		{"ipc+uts", func(all Request) Request { return Request{IPC: all.IPC, UTS: all.UTS, Hostname: all.Hostname} }},
		{"all", func(all Request) Request { return all }},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			b.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // of the claimed pin's directory
			p, r := newPinner(b), c.of(allPins(dir))
			var paths []string
			for _, k := range r.kinds() {
				paths = append(paths, k.path)
			}
			least := time.Hour // of interest on a machine that others use
			for range b.N {
				begin := time.Now()
				if err := p.Pin(b.Context(), r); err != nil {
					b.Fatal(err)
				}
				least = min(least, time.Since(begin))
				b.StopTimer()
				if err := p.Unpin(b.Context(), paths...); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(least.Microseconds()), "least-µs")
		})
	}
}
