package host

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci/spec"
)

const passwd = `# accounts
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534::/:/bin/false

app:x:1000:1000:App:/home/app:/bin/sh
twin:x:1000:2000::/home/twin:/bin/sh
big:x:4294967296:0::/:/bin/sh
minus:x:-1:0::/:/bin/sh
word:x:zero:0::/:/bin/sh
last:x:4294967295:0::/:/bin/sh
short:x:5
4294967296:x:0:0:CVE-2026-46680:/root:/bin/sh
1234:x:0:0:a number for a name:/root:/bin/sh
+nis::::::
`

const groupFile = `root:x:0:root
app:x:1000:
defined-in-image:x:50000:nobody,app
again:x:50000:app
wheel:x:10:root,twin
bad:x:99999999999:app
77:x:7:
empty:x:8
`

// image writes a root filesystem with the two files.
func image(t testing.TB, passwd, group string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "etc/passwd"), passwd)
	write(t, filepath.Join(root, "etc/group"), group)
	return root
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func id(v int64) *cri.Int64Value { return &cri.Int64Value{Value: v} }

func TestLookupUser(t *testing.T) {
	root := image(t, passwd, groupFile)
	type sc = cri.LinuxContainerSecurityContext
	strict := cri.SupplementalGroupsPolicy_Strict
	for name, c := range map[string]struct {
		image string
		sc    *sc
		want  spec.User
	}{
		"none requested": {"", nil, spec.User{Groups: []uint32{0, 10}, Home: "/root"}},
		"image name": {
			"app", nil, spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 50000}, Home: "/home/app"},
		},
		"image uid": {
			"1000", nil, spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 50000}, Home: "/home/app"},
		},
		"image uid without entry": {"4242", nil, spec.User{UID: 4242, Groups: []uint32{0}}},
		"image zeros":             {"007", nil, spec.User{UID: 7, Groups: []uint32{0}}},
		"image uid:gid": {
			"1000:1234", nil, spec.User{UID: 1000, GID: 1234, Groups: []uint32{1234, 50000}, Home: "/home/app"},
		},
		"image name:group": {
			"app:wheel", nil, spec.User{UID: 1000, GID: 10, Groups: []uint32{10, 50000}, Home: "/home/app"},
		},
		"image uid:group": {"4242:wheel", nil, spec.User{UID: 4242, GID: 10, Groups: []uint32{10}}},
		"image name:": {
			"app:", nil, spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 50000}, Home: "/home/app"},
		},
		"image :group": {":wheel", nil, spec.User{GID: 10, Groups: []uint32{10, 0}, Home: "/root"}},
		"group that is a number": {
			"app:77", nil, spec.User{UID: 1000, GID: 77, Groups: []uint32{77, 50000}, Home: "/home/app"},
		},
		"name of the twin": {
			"twin", nil, spec.User{UID: 1000, GID: 2000, Groups: []uint32{2000, 10}, Home: "/home/twin"},
		},
		"a number is no name": {"1234", nil, spec.User{UID: 1234, Groups: []uint32{0}}},
		"run_as_user": {
			"app:wheel", &sc{RunAsUser: id(65534)}, spec.User{UID: 65534, GID: 65534, Groups: []uint32{65534, 50000}, Home: "/"},
		},
		"run_as_user 0": {"app", &sc{RunAsUser: id(0)}, spec.User{Groups: []uint32{0, 10}, Home: "/root"}},
		"run_as_username": {
			"app", &sc{RunAsUsername: "nobody"}, spec.User{UID: 65534, GID: 65534, Groups: []uint32{65534, 50000}, Home: "/"},
		},
		"run_as_group": {
			"", &sc{RunAsUser: id(1001), RunAsGroup: id(1002)}, spec.User{UID: 1001, GID: 1002, Groups: []uint32{1002}},
		},
		"group of a name": {
			"", &sc{RunAsUsername: "app", RunAsGroup: id(9)},
			spec.User{UID: 1000, GID: 9, Groups: []uint32{9, 50000}, Home: "/home/app"},
		},
		// critest: SupplementalGroupsPolicy, image "predefined-group".
		"merge": {
			"", &sc{RunAsUser: id(1000), SupplementalGroups: []int64{1234}},
			spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 50000, 1234}, Home: "/home/app"},
		},
		"strict": {
			"", &sc{RunAsUser: id(1000), SupplementalGroups: []int64{1234}, SupplementalGroupsPolicy: strict},
			spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 1234}, Home: "/home/app"},
		},
		"once each": {
			"", &sc{RunAsUser: id(1000), SupplementalGroups: []int64{50000, 5, 5, 1000}},
			spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000, 50000, 5}, Home: "/home/app"},
		},
		"supplemental": {
			"", &sc{SupplementalGroups: []int64{1234, 5678}}, spec.User{Groups: []uint32{0, 10, 1234, 5678}, Home: "/root"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := LookupUser(root, c.image, c.sc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLookupUserErrors(t *testing.T) {
	root := image(t, passwd, groupFile)
	type sc = cri.LinuxContainerSecurityContext
	for name, c := range map[string]struct {
		image string
		sc    *sc
		says  string
	}{
		"CVE-2026-46680":       {"4294967296", nil, "not a user or group id"},
		"CVE-2024-40635":       {"4294967295", nil, "not a user or group id"},
		"beyond 64 bits":       {"99999999999999999999999", nil, "not a user or group id"},
		"negative":             {"-1", nil, "not a user or group id"},
		"plus":                 {"+5", nil, "not a user or group id"},
		"group too large":      {"app:4294967296", nil, "not a user or group id"},
		"unknown name":         {"ghost", nil, `no user "ghost"`},
		"unknown group":        {"app:ghosts", nil, `no group "ghosts"`},
		"entry with a big id":  {"big", nil, "no user"},
		"entry with -1":        {"minus", nil, "no user"},
		"entry with a word":    {"word", nil, "no user"},
		"entry with 2^32-1":    {"last", nil, "no user"},
		"short entry":          {"short", nil, "no user"},
		"newline":              {"app\nroot", nil, "not the name"},
		"three parts":          {"app:wheel:x", nil, "not the name"},
		"run_as_username":      {"", &sc{RunAsUsername: "ghost"}, "no user"},
		"run_as_username big":  {"", &sc{RunAsUsername: "4294967296"}, "not a user or group id"},
		"run_as_username a:b":  {"", &sc{RunAsUsername: "app:wheel"}, "not the name"},
		"both":                 {"", &sc{RunAsUser: id(1), RunAsUsername: "app"}, "both set"},
		"group alone":          {"app", &sc{RunAsGroup: id(1)}, "run_as_group needs"},
		"run_as_user negative": {"", &sc{RunAsUser: id(-1)}, "run_as_user"},
		"run_as_user big":      {"", &sc{RunAsUser: id(1 << 32)}, "run_as_user"},
		"run_as_user 2^32-1":   {"", &sc{RunAsUser: id(math.MaxUint32)}, "run_as_user"},
		"run_as_group big":     {"", &sc{RunAsUser: id(1), RunAsGroup: id(1 << 40)}, "run_as_group"},
		"supplemental":         {"", &sc{SupplementalGroups: []int64{-5}}, "supplemental_groups"},
		"policy":               {"", &sc{SupplementalGroupsPolicy: 9}, "supplemental_groups_policy"},
		"too many groups":      {"", &sc{SupplementalGroups: manyGroups()}, "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := LookupUser(root, c.image, c.sc)
			if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %v; want an error that says %q", got, err, c.says)
			}
		})
	}
}

func manyGroups() []int64 {
	out := make([]int64, maxGroups+1)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

// TestLookupUserWithoutFiles: images without accounts are common.
func TestLookupUserWithoutFiles(t *testing.T) {
	root := t.TempDir()
	got, err := LookupUser(root, "1000:1000", nil)
	if diff := cmp.Diff(spec.User{UID: 1000, GID: 1000, Groups: []uint32{1000}}, got); err != nil || diff != "" {
		t.Error(diff, err)
	}
	if _, err := LookupUser(root, "app", nil); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("LookupUser of a name without passwd: error %v, want ErrInvalidArgument", err)
	}
}

// TestHostileAccounts replaces etc/passwd by what an image author may put there.
func TestHostileAccounts(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	write(t, secret, "app:x:0:0:the host's file:/:/\n")
	for name, c := range map[string]struct {
		make func(path string) error
		fail bool
		uid  uint32
	}{
		"10 GB sparse": {
			func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o644), os.Truncate(p, 10<<30)) }, true, 0,
		},
		"just too large": {func(p string) error {
			return os.WriteFile(p, []byte("app:x:7:7::/:/\n"+strings.Repeat("#\n", accountLimit/2)), 0o644)
		}, true, 0},
		"endless line": {
			func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("x", maxLine+2)), 0o644) }, true, 0,
		},
		"fifo":      {func(p string) error { return unix.Mkfifo(p, 0o644) }, true, 0},
		"directory": {func(p string) error { return os.Mkdir(p, 0o755) }, true, 0},
		"device": {
			func(p string) error { return unix.Mknod(p, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) }, true, 0,
		},
		"magic link":           {func(p string) error { return os.Symlink("/proc/self/environ", p) }, true, 0},
		"loop":                 {func(p string) error { return os.Symlink("passwd", p) }, true, 0},
		"link to the host":     {func(p string) error { return os.Symlink(secret, p) }, true, 0},
		"link out by ..":       {func(p string) error { return os.Symlink("../../../../../../../.."+secret, p) }, true, 0},
		"link in the image":    {func(p string) error { return os.Symlink("/etc/other", p) }, false, 42},
		"absolute from inside": {func(p string) error { return os.Symlink("../../../../etc/other", p) }, false, 42},
	} {
		t.Run(name, func(t *testing.T) {
			root := image(t, "", groupFile)
			write(t, filepath.Join(root, "etc/other"), "app:x:42:42::/:/\n")
			path := filepath.Join(root, "etc/passwd")
			if err := errors.Join(os.Remove(path), c.make(path)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			got, err := LookupUser(root, "app", nil)
			if c.fail != (err != nil) || got.UID != c.uid {
				t.Errorf("LookupUser = %+v, %v, want uid %d, an error: %v", got, err, c.uid, c.fail)
			}
			if err != nil && !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("error %v, want ErrInvalidArgument", err)
			}
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("LookupUser took %v, want less than 30 s", took)
			}
		})
	}
}

// TestAccountsBehindLinks: absolute links lead to files of the image, as in images of NixOS and Guix.
func TestAccountsBehindLinks(t *testing.T) {
	root := image(t, "", "")
	if err := os.Mkdir(filepath.Join(root, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"passwd": passwd, "group": groupFile} {
		write(t, filepath.Join(root, "store", name), content)
		path := filepath.Join(root, "etc", name)
		if err := errors.Join(os.Remove(path), os.Symlink("/store/"+name, path)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LookupUser(root, "app:wheel", nil)
	want := spec.User{UID: 1000, GID: 10, Groups: []uint32{10, 50000}, Home: "/home/app"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(diff, err)
	}
}

// TestAccountsSwapped races a lookup with a process that exchanges etc for a link to the host's /etc.
func TestAccountsSwapped(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "passwd"), "app:x:666:666:the host's:/:/\n")
	root := image(t, "app:x:42:42::/:/\n", "")
	evil := filepath.Join(root, "evil")
	if err := os.Symlink(outside, evil); err != nil {
		t.Fatal(err)
	}
	swapping(t, filepath.Join(root, "etc"), evil)
	inside := 0
	for range 3000 {
		got, err := LookupUser(root, "app", nil)
		if got.UID == 666 {
			t.Fatal("LookupUser = uid 666, that of the host's file")
		}
		if err == nil && got.UID == 42 {
			inside++
		}
	}
	if inside == 0 {
		t.Error("LookupUser never read the image's file, want it to at times: the race proves nothing")
	}
}

// swapping exchanges two names until the test ends.
func swapping(t *testing.T, a, b string) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// TestManyMembers: a group with a long line is found, as is one at the end of a large file.
func TestManyMembers(t *testing.T) {
	members := make([]string, 20_000)
	for i := range members {
		members[i] = fmt.Sprintf("user%d", i)
	}
	root := image(t, "app:x:1:1::/:/\n", "all:x:70:"+strings.Join(members, ",")+",app\nlast:x:71:app")
	got, err := LookupUser(root, "app", nil)
	if err != nil || !slices.Equal(got.Groups, []uint32{1, 70, 71}) {
		t.Errorf("LookupUser = %+v, %v, want groups [1 70 71]", got, err)
	}
}

// TestHomeInMounts: the process sees the passwd file of a mount, and its own home directory in it.
func TestHomeInMounts(t *testing.T) {
	root, volume := image(t, passwd, groupFile), t.TempDir()
	write(t, filepath.Join(volume, "passwd"), "john:x:1000:1000::/home/john:/bin/sh\n")
	write(t, filepath.Join(volume, "other"), "jane:x:1000:1000::/home/jane:/bin/sh\n")
	at := func(path, source string) spec.Mount {
		return spec.Mount{Config: &cri.Mount{ContainerPath: path}, Source: source}
	}
	directory, file := at("/etc/", volume), at("/etc/passwd", filepath.Join(volume, "other"))
	for name, c := range map[string]struct {
		user   string
		mounts []spec.Mount
		want   string
	}{
		"no mount":           {"app", nil, "/home/app"},
		"elsewhere":          {"app", []spec.Mount{at("/data", volume)}, "/home/app"},
		"file":               {"app", []spec.Mount{file}, "/home/jane"},
		"directory":          {"app", []spec.Mount{directory}, "/home/john"},
		"file in directory":  {"app", []spec.Mount{file, directory}, "/home/jane"},
		"directory, file":    {"app", []spec.Mount{directory, file}, "/home/jane"},
		"id":                 {"1000", []spec.Mount{file}, "/home/jane"},
		"no such account":    {"0", []spec.Mount{file}, ""},
		"not a regular file": {"app", []spec.Mount{at("/etc/passwd", "/dev/zero")}, ""},
		"no passwd":          {"app", []spec.Mount{at("/etc", t.TempDir())}, ""},
	} {
		u, err := LookupUser(root, c.user, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := NewResolver(1, false).Home(t.Context(), u, c.mounts); err != nil || got != c.want {
			t.Errorf("%s: home = %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func FuzzLookupUser(f *testing.F) {
	f.Add(passwd, groupFile, "app:wheel", "", int64(0))
	f.Add("a:x:0:0", "b:x:1:a", "a", "a", int64(5))
	f.Add("4294967296:x:0:0::/:", "", "4294967296", "", int64(-1))
	root := f.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, passwd, group, image, name string, supplemental int64) {
		write(t, filepath.Join(root, "etc/passwd"), passwd)
		write(t, filepath.Join(root, "etc/group"), group)
		u, err := LookupUser(
			root, image, &cri.LinuxContainerSecurityContext{RunAsUsername: name, SupplementalGroups: []int64{supplemental}},
		)
		if err != nil {
			if !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("error %v, want ErrInvalidArgument", err)
			}
			return
		}
		wanted, _, _ := strings.Cut(image, ":")
		if name != "" {
			wanted = name
		}
		if numeric(wanted) && fmt.Sprint(u.UID) != strings.TrimLeft(wanted, "0") &&
			(u.UID != 0 || strings.Trim(wanted, "0") != "") {
			t.Errorf("uid of %q = %d, want the number", wanted, u.UID)
		}
		if !slices.Contains(u.Groups, u.GID) || u.UID == math.MaxUint32 || slices.Contains(u.Groups, math.MaxUint32) {
			t.Errorf("user = %+v, want its group among the groups, and no id 2^32-1", u)
		}
		slices.Sort(u.Groups)
		if len(slices.Compact(slices.Clone(u.Groups))) != len(u.Groups) {
			t.Errorf("groups = %v, want each once", u.Groups)
		}
	})
}
