package network_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/network/networktest/failpoint"
)

// losing is a network whose records are lost. Its pods' ids end with its mark.
type losing struct {
	*networktest.Bridge
	cfg   network.Config
	netns []string
}

func newLosing(t *testing.T) *losing {
	t.Helper()
	l := &losing{Bridge: networktest.NewBridge(t, "1.0.0", portmap, firewall)}
	l.cfg = l.Config()
	l.cfg.Mark, l.cfg.BootID = "mark", "boot-1"
	t.Cleanup(func() { // before the checks for leaks: a start forgets the configuration
		c, err := network.New(l.boot("last"), discard())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if kept := l.kept(t); len(kept) > 0 {
			t.Errorf("kept configurations = %v, want none when no pod has an address", kept)
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
	if err != nil {
		t.Fatal(err)
	}
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

// reboot ends the pods' namespaces and changes the configuration: pods get another network.
func (l *losing) reboot(t *testing.T) {
	t.Helper()
	for _, path := range l.netns {
		must(t, errors.Join(unix.Unmount(path, 0), os.Remove(path)))
	}
	rewrite(t, l.Bridge, strings.ReplaceAll(listWith("bridge"), `"host-local"`, `"host-local","dataDir":"/nowhere"`))
}

// holders are the ids that have addresses.
func (l *losing) holders(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.DataDir, l.Name, "10.*"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(string(data), "\r\n")
		ids = append(ids, id)
	}
	return strings.Join(ids, " ")
}

// TestLostRecord: whatever the loss of the power leaves of a record, the pod's address is freed in the next boot, with
// the configuration that it was attached with.
func TestLostRecord(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"absent":    os.Remove,
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"truncated": func(path string) error { return os.Truncate(path, 90) },
		"zeros":     func(path string) error { return os.WriteFile(path, make([]byte, 600), 0o600) },
		"whole":     func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.attach(t, "a-mark", "b-mark")
			must(t, lose(l.record("a-mark")))
			l.reboot(t)
			c := start(t, l.boot("boot-2"))
			if ids, err := c.Attachments(); err != nil || fmt.Sprint(ids) != "[a-mark b-mark]" {
				t.Errorf("attachments = %v, %v, want both", ids, err)
			}
			teardown(t, c, "a-mark")
			if got := l.holders(t); got != "b-mark" {
				t.Errorf("addresses of %q, want of b-mark", got)
			}
			teardown(t, c, "b-mark")
			if got := l.holders(t); got != "" {
				t.Errorf("addresses of %q, want none", got)
			}
		})
	}
}

// TestLostRecordIsCollected: GC detaches the pod of a lost record, and not one that is in use.
func TestLostRecordIsCollected(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "b-mark")
	must(t, errors.Join(os.Remove(l.record("a-mark")), os.Remove(l.record("b-mark"))))
	l.reboot(t)
	c := start(t, l.boot("boot-2"))
	must(t, c.GC(t.Context(), func() []string { return []string{"b-mark"} }))
	if got := l.holders(t); got != "b-mark" {
		t.Errorf("addresses of %q, want of b-mark", got)
	}
	teardown(t, c, "b-mark")
}

// TestForeignAddresses: an address of another runtime's pod, or of another podd's, is left alone.
func TestForeignAddresses(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "foreign")
	must(t, os.Remove(l.record("a-mark")))
	record, err := os.ReadFile(l.record("foreign"))
	must(t, err)
	must(t, os.Remove(l.record("foreign")))
	l.reboot(t)
	c := start(t, l.boot("boot-2"))
	if ids, err := c.Attachments(); err != nil || fmt.Sprint(ids) != "[a-mark]" {
		t.Errorf("attachments = %v, %v, want a-mark", ids, err)
	}
	must(t, os.WriteFile(l.record("foreign"), record, 0o600))
	teardown(t, c, "a-mark")
	teardown(t, c, "foreign")
}

// TestBlankAddress: host-local does not sync its files. One that the loss of the power has emptied is freed in the next
// boot, others are not, nor is one that host-local may be writing.
func TestBlankAddress(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark", "b-mark")
	dir := filepath.Join(l.DataDir, l.Name)
	blank := map[string]string{"10.0.0.8": "", "fd00::8": "\x00\x00"}
	other := map[string]string{"10.0.0.9": "other\r\neth0", "last_reserved_ip.9": ""}
	for _, files := range []map[string]string{blank, other} {
		for name, text := range files {
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	l.reboot(t)
	lock, err := os.Open(filepath.Join(dir, "lock"))
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	start(t, l.boot("boot-2"))
	want(t, dir, blank, true)
	must(t, lock.Close())

	c := start(t, l.boot("boot-2"))
	want(t, dir, blank, false)
	want(t, dir, other, true)
	for name := range other {
		must(t, os.Remove(filepath.Join(dir, name)))
	}
	if got := l.holders(t); got != "a-mark b-mark" {
		t.Errorf("addresses of %q, want of a-mark and b-mark", got)
	}
	teardown(t, c, "a-mark")
	teardown(t, c, "b-mark")
}

// TestBlankRecord: a record without content of a pod without an address is removed in the next boot; other damage is
// the disk's.
func TestBlankRecord(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark") // keeps the configuration
	records := map[string]string{l.record("empty-mark"): "", l.record("zeros-mark"): "\x00\x00\x00"}
	others := map[string]string{l.record("damaged-mark"): "{", l.record("foreign"): ""}
	for _, files := range []map[string]string{records, others} {
		for path, text := range files {
			must(t, os.WriteFile(path, []byte(text), 0o600))
		}
	}
	same := start(t, l.cfg)
	want(t, "", records, true)
	must(t, same.Close())
	l.reboot(t)
	c := start(t, l.boot("boot-2"))
	want(t, "", records, false)
	want(t, "", others, true)
	for path := range others {
		must(t, os.Remove(path))
	}
	teardown(t, c, "a-mark")
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

// TestSameBoot: in the boot in which a pod was attached, no record is lost with the power.
func TestSameBoot(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	record, err := os.ReadFile(l.record("a-mark"))
	must(t, err)
	must(t, os.Remove(l.record("a-mark")))
	c := start(t, l.cfg)
	if ids, err := c.Attachments(); err != nil || len(ids) > 0 {
		t.Errorf("attachments = %v, %v, want none", ids, err)
	}
	must(t, os.WriteFile(l.record("a-mark"), record, 0o600))
	teardown(t, c, "a-mark")
}

// TestKeptConf: the configuration is on the disk before the plugins run, and only of networks whose records can be
// restored.
func TestKeptConf(t *testing.T) {
	for name, c := range map[string]struct {
		id, mark, boot string
		more           []string
		want           int
	}{
		"restorable":     {"a-mark", "mark", "boot", nil, 1},
		"another's id":   {"mark-a", "mark", "boot", nil, 0},
		"no mark":        {"a-mark", "", "boot", nil, 0},
		"no boot id":     {"a-mark", "mark", "", nil, 0},
		"unknown plugin": {"a-mark", "mark", "boot", []string{`{"type":"failpoint"}`}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLosing(t)
			l.Write("10-bridge.conflist", "1.0.0", c.more...)
			cfg := l.cfg
			cfg.Mark, cfg.BootID = c.mark, c.boot
			bin := t.TempDir()
			failpoint.Install(t, bin)
			cfg.BinDirs = append(cfg.BinDirs, bin)
			n := start(t, cfg)
			setup(t, n, request(t, c.id))
			if kept := l.kept(t); len(kept) != c.want {
				t.Errorf("kept configurations = %v, want %d", kept, c.want)
			}
			teardown(t, n, c.id)
		})
	}
	t.Run("cannot be written", func(t *testing.T) {
		l := newLosing(t)
		l.attach(t, "a-mark")
		path := l.kept(t)[0]
		must(t, errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)))
		c := start(t, l.cfg)
		if _, err := c.Setup(t.Context(), request(t, "b-mark")); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("Setup = %v, want an error with %s", err, path)
		}
		if got := l.holders(t); got != "a-mark" {
			t.Errorf("addresses of %q, want of a-mark: no plugin was to run", got)
		}
		if _, err := os.Lstat(l.record("b-mark")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("record = %v, want %v", err, fs.ErrNotExist)
		}
		must(t, os.RemoveAll(path))
		teardown(t, c, "a-mark")
	})
}

// TestDamagedKeptConf: one that cannot be read is named in the log and kept, and does not hide the others.
func TestDamagedKeptConf(t *testing.T) {
	l := newLosing(t)
	l.attach(t, "a-mark")
	must(t, os.Remove(l.record("a-mark")))
	l.reboot(t)
	for name, text := range map[string]string{
		"rubbish": "\x00{", "hostile": header(`{"conf":{"name":"../x","plugins":[{"type":"/bin/sh"}]}}`),
	} {
		must(t, os.WriteFile(filepath.Join(l.cfg.StateDir, name+".conf"), []byte(text), 0o600))
	}
	log, logged := test.NewNullLogger()
	c, err := network.New(l.boot("boot-2"), log)
	must(t, err)
	defer c.Close()
	said := ""
	for _, e := range logged.AllEntries() {
		if e.Level == logrus.ErrorLevel {
			said += fmt.Sprint(e.Message, e.Data)
		}
	}
	for _, name := range []string{"rubbish", "hostile"} {
		if !strings.Contains(said, name+".conf") {
			t.Errorf("logged %q, want it to name %s.conf", said, name)
		}
		must(t, os.Remove(filepath.Join(l.cfg.StateDir, name+".conf")))
	}
	teardown(t, c, "a-mark")
	if got := l.holders(t); got != "" {
		t.Errorf("addresses of %q, want none", got)
	}
}

// header puts the header of a record before a body.
func header(body string) string {
	return fmt.Sprintf("{\"v\":1,\"sha256\":\"%x\"}\n%s", sha256.Sum256([]byte(body)), body)
}
