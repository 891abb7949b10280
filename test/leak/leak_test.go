package leak

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// command runs a program to make or unmake something on the host.
func command(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// anyCgroup returns a new cgroup directory in some hierarchy that this machine has.
func anyCgroup(t *testing.T, name string) string {
	t.Helper()
	list, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no cgroup hierarchy: %v", err)
	}
	return filepath.Join(list[0].Mountpoint, name)
}

// Every kind of thing is made for real, seen, taken away and seen to be gone.
func TestEveryKindIsSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts and namespaces need root")
	}
	mark := fmt.Sprintf("pl%d", os.Getpid())
	dir := filepath.Join(t.TempDir(), mark)
	cgroup := anyCgroup(t, mark)
	hadNetns, _ := mountinfo.Mounted("/run/netns") // an error says that it is not even there
	cases := []struct {
		kind       string
		make, undo func(t *testing.T)
	}{
		{"mount",
			func(t *testing.T) { command(t, "mount", "-t", "tmpfs", mark, dir) },
			func(t *testing.T) { command(t, "umount", dir) }},
		{"netns",
			func(t *testing.T) { command(t, "ip", "netns", "add", mark) },
			func(t *testing.T) {
				command(t, "ip", "netns", "del", mark)
				if !hadNetns { // the first "ip netns add" of a machine mounts it
					command(t, "umount", "/run/netns")
				}
			}},
		{"cgroup",
			func(t *testing.T) { command(t, "mkdir", cgroup) },
			func(t *testing.T) { command(t, "rmdir", cgroup) }},
		{"link",
			func(t *testing.T) { command(t, "ip", "link", "add", mark, "type", "bridge") },
			func(t *testing.T) { command(t, "ip", "link", "del", mark) }},
		{"rule",
			func(t *testing.T) { command(t, "iptables", "-w", "-N", mark) },
			func(t *testing.T) { command(t, "iptables", "-w", "-X", mark) }},
		{"cni",
			func(t *testing.T) {
				command(t, "sh", "-c", "mkdir -p /var/lib/cni/networks/"+mark+" && echo id > /var/lib/cni/networks/"+mark+"/192.0.2.9")
			},
			func(t *testing.T) { command(t, "rm", "-r", "/var/lib/cni/networks/"+mark) }},
		{"file",
			func(t *testing.T) { command(t, "touch", dir+"/file") },
			func(t *testing.T) { command(t, "rm", dir+"/file") }},
	}
	command(t, "mkdir", dir)
	o := Options{Match: []string{mark}, Files: []string{dir + "/*"}}
	for _, c := range cases {
		t.Run(c.kind, func(t *testing.T) {
			before := take(t, o)
			c.make(t)
			lines := before.Diff(take(t, o))
			c.undo(t)
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "left over: "+c.kind) }) {
				t.Errorf("not seen; the check says %q", lines)
			}
			if lines := before.Diff(take(t, o)); len(lines) > 0 {
				t.Errorf("after it was taken away: %q", lines)
			}
		})
	}
}

func take(t *testing.T, o Options) Snapshot {
	t.Helper()
	s, err := Take(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestASocketIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "listening.sock")
	o := Options{Match: []string{path}}
	before := take(t, o)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if lines := before.Diff(take(t, o)); len(lines) != 1 || !strings.HasPrefix(lines[0], "left over: socket") {
		t.Errorf("a listening socket: %q", lines)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if lines := before.Diff(take(t, o)); len(lines) > 0 {
		t.Errorf("a closed one: %q", lines)
	}
}

func TestAContainersProcessIsSeenAndWaitedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	mark := fmt.Sprintf("1000.%d", os.Getpid())
	o := Options{Match: []string{mark}}
	before := take(t, o)
	cmd := exec.Command("sh", "-c", "echo; read line", mark)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	out, outErr := cmd.StdoutPipe()
	_, inErr := cmd.StdinPipe() // stays open, so that the shell waits
	if err := errors.Join(outErr, inErr, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	// Start returns when the kernel has closed the descriptors, a moment before it has put the command line in place.
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	lines := before.Diff(take(t, o))
	if len(lines) != 2 { // its namespace and itself
		t.Errorf("a process with its own namespaces: %q", lines)
	}
	o.Wait = 10 * time.Millisecond
	if lines, err := before.Wait(t.Context(), o); err != nil || len(lines) == 0 {
		t.Errorf("Wait does not see what stays: %q, %v", lines, err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = cmd.Process.Kill() })
	o.Wait = time.Minute
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	if lines, err := before.Wait(t.Context(), o); err != nil || len(lines) > 0 {
		t.Errorf("Wait returns before the process is gone: %q, %v", lines, err)
	}
	<-done
}

func TestDiff(t *testing.T) {
	before := Snapshot{"mount": {"/a": "ext4"}, "process": {"1@1": "old"}}
	after := Snapshot{"mount": {"/b": "overlay"}, "process": {}}
	want := []string{"left over: mount    /b  overlay", "lost:      mount    /a  ext4"}
	if got := before.Diff(after); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: a process that ended is nothing lost", got, want)
	}
}

func TestRulesOfTheCNIPlugins(t *testing.T) {
	found := map[string]string{}
	addRules(found, "iptables-save", []byte(`# Generated
*nat
:PREROUTING ACCEPT [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-1234567890abcdef - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podd\" id: \"x\"" -j CNI-0123
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name" -m multiport --dports 8080 -j CNI-DN-1234567890abcdef
-A CNI-HOSTPORT-SETMARK -m comment --comment "CNI portfwd masquerade mark" -j MARK --set-xmark 0x2000/0x2000
COMMIT
*filter
:CNI-ADMIN - [0:0]
:CNI-FORWARD - [0:0]
-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD
-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN
-A CNI-FORWARD -d 10.88.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`))
	want := []string{
		"iptables nat :CNI-DN-1234567890abcdef -",
		`iptables nat -A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podd\" id: \"x\"" -j CNI-0123`,
		`iptables nat -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name" -m multiport --dports 8080 -j CNI-DN-1234567890abcdef`,
		"iptables filter -A CNI-FORWARD -d 10.88.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
	for _, w := range want {
		if _, ok := found[w]; !ok {
			t.Errorf("not found: %s", w)
		}
		delete(found, w)
	}
	for rule := range found {
		t.Errorf("belongs to no container: %s", rule)
	}
}

func TestOnly(t *testing.T) {
	s := Snapshot{"mount": {"/run/mine/x": "", "/run/other": "source /run/mine", "/run/else": ""}}
	got := s.Only(Options{Match: []string{"/run/mine"}})
	if len(got["mount"]) != 2 || len(s["mount"]) != 3 {
		t.Errorf("only %v of %v", got, s)
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want bool
	}{
		{Options{}, true},
		{Options{Match: []string{"other", "detail"}}, true},
		{Options{Match: []string{"other"}}, false},
		{Options{Ignore: []string{"a key"}}, false},
		{Options{Match: []string{"a key"}, Ignore: []string{"detail"}}, false},
		{Options{Match: []string{"a key"}, Ignore: []string{"other"}}, true},
	} {
		if got := tt.o.matches("a key", "its detail"); got != tt.want {
			t.Errorf("%+v: %v", tt.o, got)
		}
	}
}
