package network_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/checkpoint"
	"github.com/podd-project/podd/checkpoint/fsynctest"
	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/network/networktest/failpoint"
)

// losing is a network whose records are lost. Its pods' ids end with its mark.
type losing struct {
	*networktest.Bridge
	cfg network.Config
	// dir is host-local's directory.
	dir   string
	netns []string
}

func newLosing(t *testing.T) *losing {
	t.Helper()
	l := &losing{Bridge: networktest.NewBridge(t, "1.0.0", portmap, firewall)}
	l.cfg, l.dir = l.Config(), filepath.Join(l.DataDir, l.Name)
	l.cfg.Mark, l.cfg.BootID = "mark", "boot-1"
	t.Cleanup(func() { // before the checks for leaks
		c, err := network.New(l.boot("last"), discard())
		must(t, err)
		must(t, errors.Join(c.Recover(), c.Close()))
		if kept := l.kept(t); len(kept) > 0 {
			t.Errorf("kept configurations = %v, want none after a recovery", kept)
		}
	})
	return l
}

// boot is the configuration in another boot.
func (l *losing) boot(id string) network.Config {
	cfg := l.cfg
	cfg.BootID = id
	return cfg
}

func (l *losing) record(id string) string { return filepath.Join(l.cfg.StateDir, id+".json") }

func (l *losing) kept(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(l.cfg.StateDir, "*.conf"))
	must(t, err)
	return found
}

// attach attaches pods, and closes the network.
func (l *losing) attach(t *testing.T, ids ...string) {
	t.Helper()
	c := start(t, l.cfg)
	for _, id := range ids {
		r := request(t, id)
		setup(t, c, r)
		l.netns = append(l.netns, r.Netns)
	}
	must(t, c.Close())
}

// endNamespaces ends the pods' namespaces, as a reboot does.
func (l *losing) endNamespaces(t *testing.T) {
	t.Helper()
	for _, path := range l.netns {
		must(t, errors.Join(unix.Unmount(path, 0), os.Remove(path)))
	}
}

// reboot ends the pods' namespaces and changes the configuration: pods get another network.
func (l *losing) reboot(t *testing.T) {
	t.Helper()
	l.endNamespaces(t)
	rewrite(t, l.Bridge, strings.ReplaceAll(listWith("bridge"), `"host-local"`, `"host-local","dataDir":"/nowhere"`))
}

// recovered starts the network in another boot.
func (l *losing) recovered(t *testing.T, boot string) *network.CNI {
	t.Helper()
	c := start(t, l.boot(boot))
	must(t, c.Recover())
	return c
}

// leases are the files of IPv4 addresses that one of the pods has, without pods all.
func (l *losing) leases(t *testing.T, pods ...string) (files []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(l.dir, "10.*"))
	must(t, err)
	for _, f := range all {
		data, err := os.ReadFile(f)
		must(t, err)
		id, _, _ := strings.Cut(string(data), "\r\n")
		if len(pods) == 0 || slices.Contains(pods, id) {
			files = append(files, f)
		}
	}
	return files
}

// wantHolders checks who has addresses: each pod one.
func (l *losing) wantHolders(t *testing.T, pods ...string) {
	t.Helper()
	all, theirs := l.leases(t), l.leases(t, append(pods, "nobody")...)
	if len(all) != len(pods) || len(theirs) != len(pods) {
		t.Errorf("addresses = %v, of them %v of %v, want one for each", all, theirs, pods)
	}
}

func wantAttached(t *testing.T, c *network.CNI, want ...string) {
	t.Helper()
	if ids, err := c.Attachments(); err != nil || !slices.Equal(ids, want) {
		t.Errorf("attachments = %v, %v, want %v", ids, err, want)
	}
}

// emptied are what the loss of the power makes of a file that is not synced.
var emptied = map[string]func(path string) error{
	"absent":    os.Remove,
	"empty":     func(path string) error { return os.Truncate(path, 0) },
	"truncated": func(path string) error { return os.Truncate(path, 90) },
	"zeros":     func(path string) error { return os.WriteFile(path, make([]byte, 600), 0o600) },
}

// TestLostRecord: whatever the loss of the power leaves of a record, the pod's address is freed in the next boot, with
// the configuration that it was attached with, even if the power is lost again.
func TestLostRecord(t *testing.T) {
	for name, lose := range emptied {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.attach(t, "a-mark", "b-mark")
			whole, err := os.ReadFile(l.record("b-mark"))
			must(t, err)
			must(t, lose(l.record("a-mark")))
			l.reboot(t)
			wantAttached(t, l.recovered(t, "boot-2"), "a-mark", "b-mark")
			c := l.recovered(t, "boot-3")
			wantAttached(t, c, "a-mark", "b-mark")
			if now, err := os.ReadFile(l.record("b-mark")); err != nil || string(now) != string(whole) {
				t.Errorf("record that was not lost = %q, %v, want %q as before", now, err, whole)
			}
			teardown(t, c, "a-mark")
			l.wantHolders(t, "b-mark")
			teardown(t, c, "b-mark")
			l.wantHolders(t)
			must(t, os.RemoveAll(filepath.Join(l.cfg.StateDir, "damaged")))
		})
	}
}

// TestRestoredRecordIsSynced: the configuration, without which it could not be restored again, is removed afterwards.
func TestRestoredRecordIsSynced(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "b-mark", "c-mark")
	must(t, errors.Join(
		os.Remove(l.record("a-mark")),
		os.Truncate(l.leases(t, "b-mark")[0], 0),
		os.WriteFile(filepath.Join(l.dir, "10.0.0.8"), nil, 0o600)))
	l.reboot(t)
	c := start(t, l.boot("boot-2"))
	var synced []string
	must(t, fsynctest.Watch(t, c.Recover, func(file string) syscall.Errno {
		synced = append(synced, fmt.Sprintf("%s with %d kept", kind(file), len(l.kept(t))))
		return 0
	}))
	want := []string{
		"address with 1 kept", "addresses with 1 kept", // of b-mark
		"addresses with 1 kept", // without the one of no pod
		"a-mark.json with 1 kept", "directory with 1 kept",
	}
	if !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	if kept := l.kept(t); len(kept) > 0 {
		t.Errorf("kept configurations = %v, want none", kept)
	}
	for _, id := range []string{"a-mark", "b-mark", "c-mark"} {
		teardown(t, c, id)
	}
	l.wantHolders(t)
}

// kind names a file of the state directory, or of host-local's, that is synced: they have the name of a temporary file
// then.
func kind(file string) string {
	name := filepath.Base(file)
	switch {
	case strings.HasPrefix(name, "pt"): // the network's name
		return "addresses"
	case strings.Contains(name, ".tmp-10."):
		return "address"
	case name == "network":
		return "directory"
	case strings.Contains(name, ".conf"):
		return "configuration"
	}
	name, _, _ = strings.Cut(strings.TrimPrefix(name, ".tmp-"), ".json")
	return name + ".json"
}

// TestLostRecordIsCollected: GC detaches the pod of a lost record, and not one that is in use.
func TestLostRecordIsCollected(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "b-mark")
	must(t, errors.Join(os.Remove(l.record("a-mark")), os.Remove(l.record("b-mark"))))
	l.reboot(t)
	c := l.recovered(t, "boot-2")
	must(t, c.GC(t.Context(), func() []string { return []string{"b-mark"} }))
	l.wantHolders(t, "b-mark")
	teardown(t, c, "b-mark")
}

// TestNewerRecordIsKept: no loss of power makes it.
func TestNewerRecordIsKept(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, checkpoint.Write(l.record("a-mark"), 99, "x"))
	before, err := os.ReadFile(l.record("a-mark"))
	must(t, err)
	c := l.recovered(t, "boot-2")
	if now, err := os.ReadFile(l.record("a-mark")); err != nil || string(now) != string(before) {
		t.Errorf("record = %q, %v, want %q as before", now, err, before)
	}
	r := request(t, "a-mark")
	r.Netns = l.netns[0]
	must(t, c.Abandon(t.Context(), r))
	must(t, os.RemoveAll(filepath.Join(l.cfg.StateDir, "damaged")))
	l.wantHolders(t)
}

// TestForeignAddresses: addresses of another runtime's pods, or of another podd's, are left alone.
func TestForeignAddresses(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "foreign")
	must(t, os.Remove(l.record("a-mark")))
	record, err := os.ReadFile(l.record("foreign"))
	must(t, err)
	must(t, os.Remove(l.record("foreign")))
	l.reboot(t)
	c := l.recovered(t, "boot-2")
	wantAttached(t, c, "a-mark")
	must(t, os.WriteFile(l.record("foreign"), record, 0o600))
	teardown(t, c, "a-mark")
	teardown(t, c, "foreign")
}

// TestLostAddress: host-local does not sync its files. If the loss of the power has taken that of a pod whose record is
// whole, its DEL frees the address, and nothing does before: a pod that got it would lose its rules by the DEL.
func TestLostAddress(t *testing.T) {
	for name, lose := range emptied {
		if name != "truncated" { // a file of 64 characters is not
			t.Run(name, func(t *testing.T) { testLostAddress(t, lose) })
		}
	}
}

func testLostAddress(t *testing.T, lose func(path string) error) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, lose(l.leases(t)[0]))
	must(t, os.WriteFile(filepath.Join(l.dir, "last_reserved_ip.0"), nil, 0o600)) // lost, too
	l.endNamespaces(t)
	c := l.recovered(t, "boot-2")
	l.wantHolders(t, "a-mark")
	after := setup(t, c, request(t, "b-mark"))
	teardown(t, c, "a-mark")
	l.wantHolders(t, "b-mark")
	rules, err := exec.Command("iptables", "-S", "CNI-FORWARD").Output()
	must(t, err)
	for _, ip := range after.IPs {
		if ip.Is4() && !strings.Contains(string(rules), "-s "+ip.String()+"/32 ") {
			t.Errorf("rules = %s, want those of %s, which is in use", rules, ip)
		}
	}
	teardown(t, c, "b-mark")
	l.wantHolders(t)
}

// TestUnknownEmptiedAddress: one that no record has is freed, unless another runtime has pods in the network.
func TestUnknownEmptiedAddress(t *testing.T) {
	blank := map[string]string{"10.0.0.8": "", "fd00::8": "\x00\x00"}
	older := func(t *testing.T, l *losing) { l.attach(t, "older-pod") }
	for name, c := range map[string]struct {
		others map[string]string
		more   func(t *testing.T, l *losing)
		freed  bool
	}{
		"alone":                    {map[string]string{"last_reserved_ip.9": ""}, nil, true},
		"with another's":           {map[string]string{"10.0.0.9": "other\r\neth0"}, nil, false},
		"with what is none":        {map[string]string{"10.0.0.9": "rubbish/../x"}, nil, false},
		"with a pod of older podd": {nil, older, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.attach(t, "a-mark")
			if c.more != nil {
				c.more(t, l)
			}
			write(t, l.dir, blank)
			write(t, l.dir, c.others)
			l.reboot(t)
			n := l.recovered(t, "boot-2")
			want(t, l.dir, blank, !c.freed)
			want(t, l.dir, c.others, true)
			for _, files := range []map[string]string{blank, c.others} {
				for name := range files {
					_ = os.Remove(filepath.Join(l.dir, name))
				}
			}
			teardown(t, n, "a-mark")
			teardown(t, n, "older-pod")
		})
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// want checks whether files are in a directory.
func want(t *testing.T, dir string, files map[string]string, there bool) {
	t.Helper()
	for name := range files {
		if _, err := os.Lstat(filepath.Join(dir, name)); (err == nil) != there {
			t.Errorf("%s: %v, want it there: %v", name, err, there)
		}
	}
}

// TestAddressIsBeingWritten: host-local is just writing an address, of another runtime's pod, under its lock.
func TestAddressIsBeingWritten(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	l.reboot(t)
	c := start(t, l.boot("boot-2"))
	lock, err := os.Open(filepath.Join(l.dir, "lock"))
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	path := filepath.Join(l.dir, "10.0.0.8")
	must(t, os.WriteFile(path, nil, 0o600))
	time.AfterFunc(200*time.Millisecond, func() {
		_ = os.WriteFile(path, []byte("other\r\neth0"), 0o600)
		lock.Close()
	})
	must(t, c.Recover())
	if data, err := os.ReadFile(path); err != nil || string(data) != "other\r\neth0" {
		t.Errorf("address = %q, %v, want what was written", data, err)
	}
	must(t, os.Remove(path))
	teardown(t, c, "a-mark")
}

// TestRecoverAgain: what a start could not do, the next one does, also if pods were attached in between.
func TestRecoverAgain(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, os.Remove(l.record("a-mark")))
	l.endNamespaces(t)
	lock, err := os.Open(filepath.Join(l.dir, "lock"))
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	first := start(t, l.boot("boot-2"))
	if err := first.Recover(); err == nil || !strings.Contains(err.Error(), lock.Name()) {
		t.Errorf("Recover = %v, want an error with %s", err, lock.Name())
	}
	if kept := l.kept(t); len(kept) != 1 {
		t.Errorf("kept configurations = %v, want that of boot-1", kept)
	}
	must(t, lock.Close())
	setup(t, first, request(t, "b-mark"))
	c := l.recovered(t, "boot-2")
	wantAttached(t, c, "a-mark", "b-mark")
	teardown(t, c, "a-mark")
	l.wantHolders(t, "b-mark")
	teardown(t, c, "b-mark")
}

// TestDamagedConf: a kept configuration that cannot be read is named and moved away, and does not hide the others.
func TestDamagedConf(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, os.Remove(l.record("a-mark")))
	l.reboot(t)
	hostile := map[string]any{"conf": map[string]any{"name": "../x", "plugins": []any{map[string]any{"type": "/bin/sh"}}}}
	must(t, checkpoint.Write(filepath.Join(l.cfg.StateDir, "hostile.conf"), 1, hostile))
	must(t, os.WriteFile(filepath.Join(l.cfg.StateDir, "rubbish.conf"), []byte("\x00{"), 0o600))
	c := start(t, l.boot("boot-2"))
	err := c.Recover()
	for _, name := range []string{"hostile.conf", "rubbish.conf"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Recover = %v, want an error with %s", err, name)
		}
	}
	if moved, err := os.ReadDir(filepath.Join(l.cfg.StateDir, "damaged")); err != nil || len(moved) != 2 {
		t.Errorf("damaged = %v, %v, want both", moved, err)
	}
	must(t, os.RemoveAll(filepath.Join(l.cfg.StateDir, "damaged")))
	teardown(t, c, "a-mark")
	l.wantHolders(t)
}

// TestUnwritableConf: without its configuration on the disk no pod is attached, however often that is tried.
func TestUnwritableConf(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	path := l.kept(t)[0]
	must(t, errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)))
	c := start(t, l.cfg)
	for range 2 {
		if _, err := c.Setup(t.Context(), request(t, "b-mark")); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Setup = %v, want an error with %s", err, path)
		}
	}
	l.wantHolders(t, "a-mark")
	wantAttached(t, c, "a-mark")
	must(t, os.RemoveAll(path))
	teardown(t, c, "a-mark")
}

// TestSameBoot: in the boot in which a pod was attached, no record is lost with the power.
func TestSameBoot(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	record, err := os.ReadFile(l.record("a-mark"))
	must(t, err)
	must(t, os.Remove(l.record("a-mark")))
	c := l.recovered(t, "boot-1")
	wantAttached(t, c)
	must(t, os.WriteFile(l.record("a-mark"), record, 0o600))
	teardown(t, c, "a-mark")
}

// TestHostileAddresses: no file in host-local's directory makes Recover wait, or costs memory.
func TestHostileAddresses(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, os.Remove(l.record("a-mark")))
	l.reboot(t)
	special := map[string]string{"10.0.0.8": "FIFO", "10.0.0.9": "directory", "10.0.0.10": "huge", "10.0.0.11": "link"}
	write(t, l.dir, map[string]string{"10.0.0.10": "x"})
	must(t, errors.Join(
		unix.Mkfifo(filepath.Join(l.dir, "10.0.0.8"), 0o600),
		os.Mkdir(filepath.Join(l.dir, "10.0.0.9"), 0o700),
		os.Symlink(l.dir+"/lock", filepath.Join(l.dir, "10.0.0.11")),
		os.Truncate(filepath.Join(l.dir, "10.0.0.10"), 1<<40),
		os.WriteFile(filepath.Join(l.dir, "10.0.0.12"), []byte("fifo-mark\r\neth0"), 0o600),
		unix.Mkfifo(l.record("fifo-mark"), 0o600)))
	c := l.recovered(t, "boot-2")
	want(t, l.dir, special, true)
	for name := range special {
		must(t, os.Remove(filepath.Join(l.dir, name)))
	}
	teardown(t, c, "fifo-mark") // restored
	must(t, os.RemoveAll(filepath.Join(l.cfg.StateDir, "damaged")))
	teardown(t, c, "a-mark")
	l.wantHolders(t)
}

// TestCopiedStateDirectory: a copy of the state directory leaves the pods of the original alone.
func TestCopiedStateDirectory(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	cfg := l.boot("boot-2")
	cfg.StateDir = filepath.Join(t.TempDir(), "network")
	must(t, os.CopyFS(cfg.StateDir, os.DirFS(l.cfg.StateDir)))
	must(t, os.Remove(filepath.Join(cfg.StateDir, "a-mark.json")))
	c := start(t, cfg)
	must(t, c.Recover())
	wantAttached(t, c)
	teardown(t, start(t, l.cfg), "a-mark")
}

// TestRecordIsSynced: before the first plugin runs, the record is on the disk, or the configuration by which it can be
// restored.
func TestRecordIsSynced(t *testing.T) {
	const list = `{"cniVersion":"1.0.0","name":%[1]q,"plugins":[{"type":%[2]q,"bridge":%[1]q,
"ipam":{"type":%[3]q,"dataDir":%[4]q,"ranges":[[{"subnet":%[5]q}]]}}]}`
	type situation struct {
		id, mark, boot string
		conf           func(l *losing) string // instead of a bridge
		want           string
	}
	for name, s := range map[string]situation{
		"restorable":   {"a-mark", "mark", "boot", nil, "configuration directory"},
		"another's id": {"mark-a", "mark", "boot", nil, "mark-a.json directory"},
		"no mark":      {"a-mark", "", "boot", nil, "a-mark.json directory"},
		"no boot id":   {"a-mark", "mark", "", nil, "a-mark.json directory"},
		"unknown plugin": {"a-mark", "mark", "boot", func(l *losing) string {
			l.Write("10-bridge.conflist", "1.0.0", `{"type":"failpoint"}`)
			return ""
		}, "a-mark.json directory"},
		"renamed IPAM": {"a-mark", "mark", "boot", func(l *losing) string {
			return fmt.Sprintf(list, l.Name, "bridge", "renamed", l.DataDir, l.Subnet4)
		}, "a-mark.json directory"},
		"IPAM in the list": {"a-mark", "mark", "boot", func(l *losing) string {
			return fmt.Sprintf(list, l.Name, "host-local", "", l.DataDir, l.Subnet4)
		}, "a-mark.json directory"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			if s.conf != nil {
				if text := s.conf(l); text != "" {
					rewrite(t, l.Bridge, text)
				}
			}
			bin := t.TempDir()
			failpoint.Install(t, bin)
			must(t, os.Symlink(filepath.Join(l.cfg.BinDirs[0], "host-local"), filepath.Join(bin, "renamed")))
			cfg := l.cfg
			cfg.Mark, cfg.BootID, cfg.BinDirs = s.mark, s.boot, append(cfg.BinDirs, bin)
			c, r := start(t, cfg), request(t, s.id)
			var before, after []string
			must(t, fsynctest.Watch(t, func() error {
				_, err := c.Setup(t.Context(), r)
				return err
			}, func(file string) syscall.Errno {
				if len(l.leases(t)) == 0 {
					before = append(before, kind(file))
				} else {
					after = append(after, kind(file))
				}
				return 0
			}))
			if got := strings.Join(before, " "); got != s.want || (len(after) == 0) != (name == "restorable") {
				t.Errorf("synced %q before the plugins, want %q; %q after the first", got, s.want, after)
			}
			teardown(t, c, s.id)
		})
	}
}

// listWith returns a configuration of a plugin with host-local.
func listWith(plugin string) string {
	return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"x","type":%q,"ipam":{"type":"host-local"}}`, plugin)
}

func rewrite(t *testing.T, b *networktest.Bridge, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.ConfDir, "10-bridge.conflist"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
