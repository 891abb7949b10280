package criu

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/capability"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protowire"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spec is a container of user 7 without privileges.
func spec() *specs.Spec {
	caps := []string{"CAP_CHOWN", "CAP_BPF"} // one in each word of a set
	return &specs.Spec{
		Process: &specs.Process{
			User: specs.User{UID: 7, GID: 8, AdditionalGids: []uint32{9}}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: caps},
		},
		Linux: &specs.Linux{Seccomp: &specs.LinuxSeccomp{}},
	}
}

// core is a thread as CRIU writes it: credentials by the number of their field, and the mode of seccomp.
type core struct {
	creds   map[protowire.Number][]uint64
	lsm     string
	seccomp uint64
}

// goodCore is what a container of spec has.
func goodCore() core {
	return core{seccomp: seccompFilter, creds: map[protowire.Number][]uint64{
		1: {7}, 2: {8}, 3: {7}, 4: {8}, 5: {7}, 6: {8}, 7: {7}, 8: {8},
		9: {0, 0}, 10: {0, 0}, 11: {0, 0}, 12: {1 << capability.CAP_CHOWN, 1 << (capability.CAP_BPF - 32)},
		13: {0}, 14: {8, 9}, 18: {1}, 19: {0, 0},
	}}
}

func (c core) encode() []byte {
	var creds, thread, entry []byte
	for number := protowire.Number(1); number <= credsCapAmbient; number++ {
		for _, value := range c.creds[number] {
			creds = protowire.AppendVarint(protowire.AppendTag(creds, number, protowire.VarintType), value)
		}
	}
	if c.lsm != "" {
		creds = protowire.AppendString(protowire.AppendTag(creds, credsLSM, protowire.BytesType), c.lsm)
	}
	thread = protowire.AppendFixed64(protowire.AppendTag(thread, 1, protowire.Fixed64Type), 1)
	thread = protowire.AppendBytes(protowire.AppendTag(thread, threadCreds, protowire.BytesType), creds)
	thread = protowire.AppendVarint(protowire.AppendTag(thread, threadSeccomp, protowire.VarintType), c.seccomp)
	entry = protowire.AppendVarint(protowire.AppendTag(entry, 1, protowire.VarintType), 1)
	return protowire.AppendBytes(protowire.AppendTag(entry, coreThread, protowire.BytesType), thread)
}

// image returns an image of these messages.
func image(messages ...[]byte) []byte {
	data := binary.LittleEndian.AppendUint64(nil, 0x55053847<<32|magic)
	for _, m := range messages {
		data = append(binary.LittleEndian.AppendUint32(data, uint32(len(m))), m...)
	}
	return data
}

// write makes a directory of images.
func write(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func TestCheckPrivileges(t *testing.T) {
	set := func(number protowire.Number, values ...uint64) func(*core, *specs.Spec) {
		return func(c *core, _ *specs.Spec) { c.creds[number] = values }
	}
	for _, tt := range []struct {
		name   string
		change func(*core, *specs.Spec)
		want   string // words of the error, "" for none
	}{
		{"equal", func(*core, *specs.Spec) {}, ""},
		{"fewer capabilities", set(12, 0, 0), ""},
		{"fewer groups", set(14), ""},
		{"bounding", set(12, 1<<capability.CAP_SYS_ADMIN, 0), "the capabilities 0x200000"},
		{"inheritable", set(9, 1<<capability.CAP_KILL, 0), "capabilities"},
		{"permitted", set(10, 0, 1<<(capability.CAP_PERFMON-32)), "capabilities"},
		{"effective", set(11, 1<<capability.CAP_SETUID, 0), "capabilities"},
		{"ambient", set(19, 1<<capability.CAP_SETUID, 0), "capabilities"},
		{"capability that has no name", set(12, 0, 1<<31), "capabilities"},
		{"words of a set twice", set(12, 0, 0, 1), "not an image"},
		{"user", set(1, 0), "the users [0 7 7 7]"},
		{"effective user", set(3, 0), "the users"},
		{"saved user", set(5, 0), "the users"},
		{"user of files", set(7, 0), "the users"},
		{"group", set(2, 0), "the groups"},
		{"group of files", set(8, 0), "the groups"},
		{"additional group", set(14, 8, 0), "the groups"},
		{"user twice", set(1, 7, 7), "not an image"},
		{"no user", set(1), "not an image"},
		{"no credentials", func(c *core, _ *specs.Spec) { c.creds = nil }, "not an image"},
		{"new privileges", set(18, 0), "no_new_privs"},
		{"new privileges absent", set(18), "no_new_privs"},
		{"no filter", func(c *core, _ *specs.Spec) { c.seccomp = 0 }, "seccomp"},
		{"no filter wanted", func(c *core, s *specs.Spec) { c.seccomp, s.Linux.Seccomp = 0, nil }, ""},
		{"another profile", func(c *core, s *specs.Spec) { c.lsm, s.Process.ApparmorProfile = "b", "a" }, `profile "b"`},
		{"no profile", func(_ *core, s *specs.Spec) { s.Process.SelinuxLabel = "a" }, `profile ""`},
		{"profile", func(c *core, s *specs.Spec) { c.lsm, s.Process.ApparmorProfile = "a", "a" }, ""},
		{"root that may change its user", func(c *core, s *specs.Spec) {
			s.Process.User.UID, s.Process.Capabilities.Bounding = 0, []string{"CAP_SETUID", "CAP_CHOWN", "CAP_BPF"}
			c.creds[1] = []uint64{1234}
		}, ""},
		{"user that may not, though the set has it", func(c *core, s *specs.Spec) {
			s.Process.Capabilities.Bounding = append(s.Process.Capabilities.Bounding, "CAP_SETUID")
			c.creds[1] = []uint64{0}
		}, "the users"},
		{"user by a program that sets it", func(c *core, s *specs.Spec) {
			s.Process.NoNewPrivileges, c.creds[1], c.creds[18] = false, []uint64{0}, nil
		}, ""},
	} {
		c, s := goodCore(), spec()
		tt.change(&c, s)
		dir := write(t, map[string][]byte{
			"core-1.img": image(c.encode()), "core-2.img": image(c.encode()),
			"descriptors.json": []byte(`["/dev/null","pipe:[1]"]`),
		})
		err := CheckPrivileges(dir, s)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: CheckPrivileges = %v, want %q", tt.name, err, tt.want)
		}
		if err != nil && !errdefs.IsPermissionDenied(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: CheckPrivileges = %v, want one of the kinds of refused images", tt.name, err)
		}
	}
}

// TestZombie: a process that has ended has no credentials, and one that CRIU would run without them is refused.
func TestZombie(t *testing.T) {
	good := image(goodCore().encode())
	written, err := hex.DecodeString("19435654473805551500000008011a11080210001800200028003205736c656570") // by CRIU 4.2.1
	must(t, err)
	task := func(states ...uint64) (entry []byte) {
		for _, state := range states {
			task := protowire.AppendVarint(protowire.AppendTag(nil, taskState, protowire.VarintType), state)
			entry = protowire.AppendBytes(protowire.AppendTag(entry, coreTask, protowire.BytesType), task)
		}
		return entry
	}
	bad := goodCore()
	bad.creds[1] = []uint64{0}
	empty := protowire.AppendBytes(protowire.AppendTag(nil, coreThread, protowire.BytesType), nil)
	const alive, stopped = 1, 3
	for _, tt := range []struct {
		name string
		data []byte
		want string // words of the error, "" for none
	}{
		{"zombie", written, ""},
		{"alive", image(task(alive)), "not an image"},
		{"stopped", image(task(stopped)), "not an image"},
		{"no state", image(task()), "not an image"},
		{"alive in the end", image(task(taskDead, alive)), "not an image"},
		{"dead with credentials", image(append(task(taskDead), goodCore().encode()...)), ""},
		{"dead with those of another user", image(append(task(taskDead), bad.encode()...)), "the users"},
		{"dead with a part of them", image(append(task(taskDead), empty...)), "not an image"},
	} {
		dir := write(t, map[string][]byte{"core-1.img": good, "core-2.img": tt.data, "descriptors.json": []byte(`[]`)})
		err := CheckPrivileges(dir, spec())
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: CheckPrivileges = %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestHostileImages: what is not an image is refused, and nothing is read without a bound.
func TestHostileImages(t *testing.T) {
	good := image(goodCore().encode())
	bad := goodCore()
	bad.creds[1] = []uint64{0}
	for name, files := range map[string]map[string][]byte{
		"no thread":            {},
		"empty":                {"core-1.img": {}},
		"another magic":        {"core-1.img": append([]byte{0}, good[1:]...)},
		"no message":           {"core-1.img": good[:magicSize]},
		"two messages":         {"core-1.img": image(goodCore().encode(), goodCore().encode())},
		"length of 4 GiB":      {"core-1.img": append(bytes.Clone(good[:magicSize]), 0xff, 0xff, 0xff, 0xff, 0)},
		"half a length":        {"core-1.img": append(bytes.Clone(good), 1)},
		"half a message":       {"core-1.img": good[:len(good)-3]},
		"huge":                 {"core-1.img": make([]byte, maxImage+1)},
		"second thread":        {"core-1.img": good, "core-2.img": image(bad.encode())},
		"no descriptors":       {"core-1.img": good, "descriptors.json": {}},
		"too many descriptors": {"core-1.img": good, "descriptors.json": []byte(`["","","","pipe:[1]"]`)},
		"packed list": {"core-1.img": image(func() []byte {
			creds := protowire.AppendBytes(protowire.AppendTag(nil, 12, protowire.BytesType), []byte{1, 1})
			thread := protowire.AppendBytes(protowire.AppendTag(nil, threadCreds, protowire.BytesType), creds)
			return protowire.AppendBytes(protowire.AppendTag(nil, coreThread, protowire.BytesType), thread)
		}())},
	} {
		if _, ok := files["descriptors.json"]; !ok {
			files["descriptors.json"] = []byte(`[]`)
		}
		err := CheckPrivileges(write(t, files), spec())
		if !errdefs.IsPermissionDenied(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%s: CheckPrivileges = %v, want it refused", name, err)
		}
	}
	dir := write(t, map[string][]byte{"core-1.img": good})
	must(t, os.Symlink("core-1.img", filepath.Join(dir, "descriptors.json")))
	if err := CheckPrivileges(dir, spec()); err == nil {
		t.Error("CheckPrivileges with a link = nil, want an error")
	}
}

func TestSetHostname(t *testing.T) {
	entry := protowire.AppendString(protowire.AppendTag(nil, utsDomainname, protowire.BytesType), "(none)")
	entry = protowire.AppendString(protowire.AppendTag(entry, utsNodename, protowire.BytesType), "old")
	dir := write(t, map[string][]byte{"utsns-12.img": image(entry)})
	must(t, SetHostname(dir, "new"))
	header, messages, err := readImage(filepath.Join(dir, "utsns-12.img"))
	must(t, err)
	got := map[protowire.Number]string{}
	must(t, fields(messages[0], func(number protowire.Number, _ uint64, data []byte) error {
		got[number] = string(data)
		return nil
	}))
	if len(messages) != 1 || got[utsNodename] != "new" || got[utsDomainname] != "(none)" ||
		!bytes.Equal(header, image()) {
		t.Errorf("image = %x %q, want the new host name and the same domain name", header, got)
	}
	must(t, SetHostname(t.TempDir(), "new")) // a container with the namespace of the node
	if err := SetHostname(write(t, map[string][]byte{"utsns-1.img": image()}), "new"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("SetHostname of an image without a message = %v, want %v", err, errdefs.ErrFailedPrecondition)
	}
}

func TestHasIPC(t *testing.T) {
	for name, want := range map[string]bool{"ipcns-shm-9.img": true, "ipcns-sem-9.img": true, "ipcns-msg-9.img": true,
		"ipcns-var-9.img": false} {
		dir := write(t, map[string][]byte{"ipcns-shm-1.img": image(), name: image([]byte{8, 1})})
		if got, err := HasIPC(dir); err != nil || got != want {
			t.Errorf("HasIPC with %s = %v, %v, want %v", name, got, err, want)
		}
	}
}

func FuzzCore(f *testing.F) {
	f.Add(goodCore().encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		th, err := parseThread(data)
		const allowed = 1<<capability.CAP_CHOWN | 1<<capability.CAP_BPF
		if err == nil && privilegesOf(spec()).check(th) == nil && th.capabilities&^allowed != 0 {
			t.Errorf("accepted %+v", th)
		}
	})
}
