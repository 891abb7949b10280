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

// thing is one resource of each kind that the check looks at.
type thing struct {
	kind       string
	make, undo func(t *testing.T)
}

// things returns a resource of each kind, with mark in its name. dir exists.
func things(t *testing.T, mark, dir string) []thing {
	t.Helper()
	cgroup, store := anyCgroup(t, mark), "/var/lib/cni/networks/"+mark
	hadNetns, _ := mountinfo.Mounted("/run/netns") // fails if the directory does not exist
	run := func(args ...string) func(t *testing.T) {
		return func(t *testing.T) { command(t, args...) }
	}
	return []thing{
		{"mount", run("mount", "-t", "tmpfs", mark, dir), run("umount", dir)},
		{"netns", run("ip", "netns", "add", mark), func(t *testing.T) {
			command(t, "ip", "netns", "del", mark)
			if !hadNetns { // the first "ip netns add" on a machine mounts it
				command(t, "umount", "/run/netns")
			}
		}},
		{"cgroup", run("mkdir", cgroup), run("rmdir", cgroup)},
		{"link", run("ip", "link", "add", mark, "type", "bridge"), run("ip", "link", "del", mark)},
		{"rule", run("iptables", "-w", "-N", mark), run("iptables", "-w", "-X", mark)},
		{"cni", run("sh", "-c", "mkdir -p "+store+" && echo id > "+store+"/192.0.2.9"), run("rm", "-r", store)},
		{"file", run("touch", dir+"/file"), run("rm", dir+"/file")},
		isolated(mark),
	}
}

// isolated is a process with namespaces of its own, and with mark in its command line.
func isolated(mark string) thing {
	cmd := exec.Command("sh", "-c", "echo; read line", mark)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	return thing{"process",
		func(t *testing.T) {
			out, outErr := cmd.StdoutPipe()
			_, inErr := cmd.StdinPipe() // stays open, so that the shell waits
			if err := errors.Join(outErr, inErr, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			// Start returns when exec has closed the descriptors, a moment before the new command line is visible.
			if _, err := out.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		},
		func(*testing.T) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}}
}

func TestEveryKindIsSeen(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts and namespaces need root")
	}
	mark := fmt.Sprintf("pl%d", os.Getpid())
	dir := filepath.Join(t.TempDir(), mark)
	cases := things(t, mark, dir)
	command(t, "mkdir", dir)
	o := Options{Match: []string{mark}, Files: []string{dir + "/*"}}
	for _, c := range cases {
		t.Run(c.kind, func(t *testing.T) {
			before := take(t, o)
			c.make(t)
			lines := before.Diff(take(t, o))
			c.undo(t)
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "left over: "+c.kind) }) {
				t.Errorf("after creation: differences %q, want a line for the %s", lines, c.kind)
			}
			if lines := before.Diff(take(t, o)); len(lines) > 0 {
				t.Errorf("after removal: differences %q, want none", lines)
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
		t.Errorf("listening socket: differences %q, want one left over", lines)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if lines := before.Diff(take(t, o)); len(lines) > 0 {
		t.Errorf("closed socket: differences %q, want none", lines)
	}
}

func TestAContainersProcessIsSeenAndWaitedFor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	mark := fmt.Sprintf("1000.%d", os.Getpid())
	o := Options{Match: []string{mark}}
	before := take(t, o)
	p := isolated(mark)
	p.make(t)
	lines := before.Diff(take(t, o))
	if len(lines) != 2 {
		t.Errorf("process with its own namespaces: differences %q, want the process and its network namespace", lines)
	}
	o.Wait = 10 * time.Millisecond
	if lines, err := before.Wait(t.Context(), o); err != nil || len(lines) == 0 {
		t.Errorf("Wait with a process left = %q, %v, want differences", lines, err)
	}
	o.Wait = time.Minute
	done := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { p.undo(t); close(done) })
	if lines, err := before.Wait(t.Context(), o); err != nil || len(lines) > 0 {
		t.Errorf("Wait with the process killed = %q, %v, want none", lines, err)
	}
	<-done
}

func TestDiff(t *testing.T) {
	before := Snapshot{"mount": {"/a": "ext4"}, "process": {"1@1": "old"}}
	after := Snapshot{"mount": {"/b": "overlay"}, "process": {}}
	want := []string{"left over: mount    /b  overlay", "lost:      mount    /a  ext4"}
	if got := before.Diff(after); !slices.Equal(got, want) {
		t.Errorf("Diff = %q, want %q", got, want)
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
		`iptables nat -A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name" -m multiport --dports 8080 ` +
			`-j CNI-DN-1234567890abcdef`,
		"iptables filter -A CNI-FORWARD -d 10.88.0.2/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
	}
	for _, w := range want {
		if _, ok := found[w]; !ok {
			t.Errorf("rules lack %s, want it listed", w)
		}
		delete(found, w)
	}
	for rule := range found {
		t.Errorf("rules have %s, want it ignored: it belongs to no container", rule)
	}
}

func TestOnly(t *testing.T) {
	s := Snapshot{"mount": {"/run/mine/x": "", "/run/other": "source /run/mine", "/run/else": ""}}
	got := s.Only(Options{Match: []string{"/run/mine"}})
	if len(got["mount"]) != 2 || len(s["mount"]) != 3 {
		t.Errorf("Only = %v (of %v), want the two that mention /run/mine", got, s)
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
			t.Errorf("%+v: matches = %v, want %v", tt.o, got, tt.want)
		}
	}
}
