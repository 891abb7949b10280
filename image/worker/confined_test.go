package worker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/containerd/errdefs"
	"go.podman.io/storage/pkg/reexec"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/image/child"
	"github.com/podd-project/podd/image/confine"
	"github.com/podd-project/podd/image/registry"
)

// Roles of this test's binary.
const (
	confineProbe = "podd-test-confine" // becomes openProbe, restricted as a pull's process is
	openProbe    = "podd-test-open"    // opens the files of its arguments
	runProbes    = "podd-test-run"     // runs the programs of its arguments
	deviceProbe  = "podd-test-device"  // makes a device node and opens it
	processProbe = "podd-test-process" // changes the process with the pid of its argument
	kernelProbe  = "podd-test-kernel"  // makes system calls that concern the whole node
	networkProbe = "podd-test-network" // makes sockets
	limitsProbe  = "storage-test"      // shows its limits, as a process of containers/storage
	crashProbe   = "podd-test-crash"   // panics
	memoryProbe  = "podd-test-memory"  // takes memory until it gets no more
)

func init() {
	reexec.Register(confineProbe, func() {
		policy, err := pullPolicy()
		if err == nil {
			err = policy.Exec(os.Args[1:], os.Environ())
		}
		child.Fail(err)
	})
	reexec.Register(openProbe, func() {
		for _, path := range os.Args[1:] {
			_, read := os.Open(path)
			_, write := os.OpenFile(path, os.O_WRONLY, 0)
			fmt.Println(allowed(read), allowed(write))
		}
	})
	reexec.Register(runProbes, func() {
		for _, path := range os.Args[1:] {
			program := exec.Cmd{Path: path, Args: []string{openProbe}} // the test's own binary ends at once
			fmt.Println(allowed(program.Run()))
		}
	})
	reexec.Register(deviceProbe, func() {
		fmt.Println(allowed(unix.Mknod(os.Args[1], unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))) // as /dev/null
		_, err := os.Open(os.Args[1])
		fmt.Println(allowed(err))
	})
	reexec.Register(processProbe, func() {
		pid, _ := strconv.Atoi(os.Args[1])
		var limit unix.Rlimit
		var processors unix.CPUSet
		processors.Set(0)
		handle, err := unix.PidfdOpen(pid, 0)
		_ = unix.Close(handle)
		fmt.Println(allowed(unix.Kill(pid, 0)), allowed(unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit)),
			allowed(unix.Setpriority(unix.PRIO_PROCESS, pid, 0)), allowed(unix.SchedSetaffinity(pid, &processors)), allowed(err))
	})
	reexec.Register(kernelProbe, func() {
		dir, err := os.Open(os.Args[1])
		if err != nil {
			child.Fail(err)
		}
		// Each is harmless where it is allowed: nothing is frozen, nothing is mapped at the address.
		const fithaw, nowhere, page, softOffline, ipcInfo = 0xc0045878, 1 << 16, 1 << 12, 101, 3
		_, _, thaw := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), fithaw, 0)
		_, _, offline := unix.Syscall(unix.SYS_MADVISE, nowhere, page, softOffline)
		_, _, offlineTruncated := unix.Syscall(unix.SYS_MADVISE, nowhere, page, softOffline|1<<32)
		_, _, segments := unix.Syscall(unix.SYS_SHMCTL, 0, ipcInfo, uintptr(unsafe.Pointer(&[256]byte{})))
		_, memory := unix.MemfdCreate("x", 0)
		for _, err := range []error{thaw, offline, offlineTruncated, segments, memory} {
			fmt.Println(allowed(err))
		}
	})
	reexec.Register(networkProbe, func() {
		for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
			fd, err := unix.Socket(family, unix.SOCK_DGRAM, 0)
			_ = unix.Close(fd)
			fmt.Println(allowed(err))
		}
	})
	reexec.Register(limitsProbe, func() {
		var memory unix.Rlimit
		err := unix.Getrlimit(unix.RLIMIT_DATA, &memory)
		score, serr := os.ReadFile("/proc/self/oom_score_adj")
		if err = errors.Join(err, serr); err != nil {
			child.Fail(err)
		}
		fmt.Println(memory.Max, strings.TrimSpace(string(score)))
	})
	reexec.Register(crashProbe, func() { panic("a cannot allocate memory of an image") })
	reexec.Register(memoryProbe, func() {
		limit := syscall.Rlimit{Cur: 256 << 20, Max: 256 << 20}
		if err := syscall.Setrlimit(unix.RLIMIT_DATA, &limit); err != nil {
			child.Fail(err)
		}
		var all [][]byte
		for {
			all = append(all, bytes.Repeat([]byte{1}, 1<<20))
			runtime.KeepAlive(all)
		}
	})
}

func allowed(err error) string {
	switch {
	case err == nil:
		return "yes"
	case errors.Is(err, os.ErrPermission):
		return "no"
	case errors.Is(err, os.ErrNotExist):
		return "absent"
	}
	return err.Error()
}

func needLandlock(t *testing.T) {
	t.Helper()
	if v, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); int(v) < 1 {
		t.Skip("this kernel has no Landlock")
	}
}

// TestFilesOfPull opens files in a process with the restrictions of a pull's.
func TestFilesOfPull(t *testing.T) {
	needLandlock(t)
	dir := t.TempDir()
	cfg := registry.DefaultConfig()
	l := Layout{Root: filepath.Join(dir, "s"), RunRoot: filepath.Join(dir, "run")}
	cfg.Policy, cfg.AuthFile = filepath.Join(dir, "policy.json"), filepath.Join(dir, "auth.json")
	key, hidden := filepath.Join(dir, "keys/key.gpg"), filepath.Join(dir, "keys/hidden")
	cfg.DecryptionKeysPath = filepath.Join(dir, "decryption")
	decryption := filepath.Join(cfg.DecryptionKeysPath, "key.pem")
	for path, content := range map[string]string{
		cfg.Policy: `{"transports":{"docker":{"":[{"keyPaths":["` + key + `"]}]}}}`, cfg.AuthFile: "{}",
		key: "", hidden: "", decryption: "",
		l.Root + "/rootfs/c/merged/file": "", l.Root + "/overlay/l/diff/file": "", l.Root + "/tmp/pull-1/file": "",
		l.Root + "/tmp/pull-2/file": "", l.Integrity(): "{}", l.RunRoot + "/lock": "",
	} {
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	const none, read, both, absent = "no no", "yes no", "yes yes", "absent absent"
	cases := []struct{ path, want string }{
		{"/etc/shadow", none}, {"/usr/bin/env", none}, {fmt.Sprintf("/proc/%d/environ", os.Getpid()), absent}, {hidden, none},
		{"/proc/sys/kernel/core_pattern", absent}, {l.Root + "/rootfs/c/merged/file", none},
		{l.Root + "/tmp/pull-2/file", none}, {l.Integrity(), none},
		{"/etc/hosts", read}, {cfg.Policy, read}, {cfg.AuthFile, none}, {key, read},
		{decryption, read},
		{l.Root + "/overlay/l/diff/file", both}, {l.Root + "/tmp/pull-1/file", both}, {l.RunRoot + "/lock", both},
	}
	args := []string{openProbe}
	for _, c := range cases {
		args = append(args, c.path)
	}
	lines := confinedLines(t, Job{Config: cfg, Layout: l, Dir: l.Root + "/tmp/pull-1"}, args...)
	if len(lines) != len(cases) {
		t.Fatalf("the process printed %q, want %d lines", lines, len(cases))
	}
	for i, c := range cases {
		if lines[i] != c.want {
			t.Errorf("%s: may be read and written: %s, want %s", c.path, lines[i], c.want)
		}
	}
}

// TestFilesOfArtifact: the process that fetches an artifact changes no file.
func TestFilesOfArtifact(t *testing.T) {
	needLandlock(t)
	job, layer := confinedStore(t)
	job.Layout, job.Config.RegistriesConf = Layout{}, filepath.Join(job.Dir, "registries.conf")
	job.Part, job.Config.DecryptionKeysPath = &Part{}, t.TempDir()
	file, key := filepath.Join(layer, "file"), filepath.Join(job.Config.DecryptionKeysPath, "key")
	err := errors.Join(os.WriteFile(job.Config.RegistriesConf, nil, 0o600), os.WriteFile(file, nil, 0o600),
		os.WriteFile(key, nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	got := confinedLines(t, job, openProbe, "/etc/shadow", file, key, job.Config.RegistriesConf)
	if want := []string{"no no", "no no", "no no", "yes no"}; !slices.Equal(got, want) {
		t.Errorf("may read and write /etc/shadow, a layer, a decryption key, and its registries.conf: %q, want %q", got, want)
	}
}

// TestLimitsWithoutPull: the process that packs what a container has written has limited memory, and is ended before
// podd is, however many files the container has made.
func TestLimitsWithoutPull(t *testing.T) {
	memory := uint64(unix.RLIM_INFINITY)
	if limit := child.HardMemory(maxUnpackMemory); limit > 0 { // none for the race detector
		memory = limit
	}
	out := runProbe(t, nil, limitsProbe)
	if want := fmt.Sprintln(memory, 500); out.err != nil || out.stdout != want {
		t.Errorf("limit of memory and oom_score_adj = %q, %v, want %q: %s", out.stdout, out.err, want, out.stderr)
	}
}

// TestLinkTargets: of hundreds of links to certificates only those lead to a rule that lead out of what is readable.
func TestLinkTargets(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(outside, "own.crt"), nil, 0o600),
		os.Symlink("/etc/hosts", filepath.Join(outside, "hosts")))
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"own.pem": filepath.Join(outside, "own.crt"), "a1b2c3.0": "own.pem", "hosts.pem": "/etc/hosts",
		"indirect.pem": "hosts.pem", "relative.pem": "../../../../../../../../etc/hosts", "up": "..", "missing.pem": "absent",
		"back.pem": filepath.Join(outside, "hosts"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(outside, "own.crt"), filepath.Dir(dir)}
	if got := linkTargets(dir); !slices.Equal(got, want) {
		t.Errorf("linkTargets = %q, want %q", got, want)
	}
}

// confinedLines returns the lines that this test's binary prints in a role, restricted as the process of a job.
func confinedLines(t *testing.T, job Job, role ...string) []string {
	t.Helper()
	out := runProbe(t, childEnv(job), confineProbe, role...)
	if out.err != nil {
		t.Fatalf("the process printed %q, %v: %s", out.stdout, out.err, out.stderr)
	}
	return strings.Split(strings.TrimSuffix(out.stdout, "\n"), "\n")
}

// confinedStore makes the directories of a pull and of a layer.
func confinedStore(t *testing.T) (job Job, layer string) {
	t.Helper()
	temp := t.TempDir()
	l := Layout{Root: filepath.Join(temp, "s"), RunRoot: filepath.Join(temp, "run")}
	job, layer = Job{Config: registry.DefaultConfig(), Layout: l, Dir: l.Temp() + "/pull-1"}, l.LayerFiles("l")
	for _, made := range []string{job.Dir, layer, l.RunRoot} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return job, layer
}

// TestProgramsOfPull: a pull's process runs itself, and neither programs of the node nor what it has written.
func TestProgramsOfPull(t *testing.T) {
	needLandlock(t)
	job, layer := confinedStore(t)
	job.Config.RegistriesConf = filepath.Join(filepath.Dir(job.Layout.Root), "readable")
	dropIns := job.Config.RegistriesConfDir()
	readable, written := filepath.Join(dropIns, "program"), filepath.Join(layer, "program")
	program, err := os.ReadFile("/proc/self/exe")
	err = errors.Join(err, os.Mkdir(dropIns, 0o700), os.WriteFile(readable, program, 0o700),
		os.Link(readable, written))
	if err != nil {
		t.Fatal(err)
	}
	got := confinedLines(t, job, runProbes, "/bin/true", readable, written, "/proc/self/exe")
	if !slices.Equal(got, []string{"no", "no", "no", "yes"}) {
		t.Errorf("may run /bin/true, programs in /etc and in a layer, and itself: %q, want no, no, no, yes", got)
	}
}

// TestDevicesOfPull: a pull's process makes the device nodes of images, and cannot open them.
func TestDevicesOfPull(t *testing.T) {
	job, layer := confinedStore(t)
	got := confinedLines(t, job, deviceProbe, filepath.Join(layer, "device"))
	if !slices.Equal(got, []string{"yes", "no"}) {
		t.Errorf("may make and open a device: %q, want yes and no", got)
	}
}

// TestProcessesOfPull: a pull's process is root, and can neither see nor change other processes of root: without a PID
// namespace it could take the open files of podd away.
func TestProcessesOfPull(t *testing.T) {
	job, _ := confinedStore(t)
	got := confinedLines(t, job, processProbe, strconv.Itoa(os.Getpid()))
	const absent = "no such process"
	want := strings.Join([]string{absent, absent, absent, absent, absent}, " ")
	if !slices.Equal(got, []string{want}) {
		t.Errorf("may signal, limit, prioritise, move and open this test's process: %q, want %q", got, want)
	}
}

// TestSystemCallsOfPull: CAP_SYS_ADMIN, which a pull's process needs for attributes of files, does not let it freeze
// the file system (ioctl), take memory of the node out of use (madvise), read or remove shared memory of others, or
// take memory that no limit counts.
func TestSystemCallsOfPull(t *testing.T) {
	job, layer := confinedStore(t)
	got := confinedLines(t, job, kernelProbe, layer)
	if want := []string{"no", "no", "no", "no", "no"}; !slices.Equal(got, want) {
		t.Errorf("may thaw a file system, offline memory (twice), list segments, make a memory file: %q, want %q", got, want)
	}
}

// TestNetworkOfPull: a pull has the network; what copies or verifies what is on this machine has none.
func TestNetworkOfPull(t *testing.T) {
	job, _ := confinedStore(t)
	for name, c := range map[string]struct {
		job  Job
		want []string
	}{
		"pull":   {Job{}, []string{"yes", "yes", "no"}},
		"load":   {Job{Load: "/a.tar"}, []string{"no", "no", "no"}},
		"verify": {Job{Verify: "1"}, []string{"no", "no", "no"}},
	} {
		c.job.Config, c.job.Layout, c.job.Dir = job.Config, job.Layout, job.Dir
		out := runProbe(t, childEnv(c.job), confineProbe, networkProbe)
		if got := strings.Fields(out.stdout); out.err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: may open sockets of IPv4, IPv6 and netlink: %q, %v, want %q: %s",
				name, got, out.err, c.want, out.stderr)
		}
	}
}

// probeOutput is what a process has left.
type probeOutput struct {
	stdout, stderr string
	err            error
}

// runProbe runs this test's binary in a role.
func runProbe(t *testing.T, env []string, role string, args ...string) probeOutput {
	t.Helper()
	runtime.LockOSThread() // the process dies with this thread
	defer runtime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args, cmd.Env = append([]string{role}, args...), env
	cmd.SysProcAttr = confine.Attributes()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return probeOutput{stdout.String(), stderr.String(), err}
}

// TestChildDeath: the error of a pull whose process has died says of what.
func TestChildDeath(t *testing.T) {
	t.Run("panic", func(t *testing.T) {
		out := runProbe(t, nil, crashProbe)
		err := childDeath(registry.DefaultConfig(), child.Exit{Err: out.err, Stderr: out.stderr})
		if errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "crashed") ||
			strings.Contains(err.Error(), "pull_memory") || strings.Contains(err.Error(), "goroutine") {
			t.Errorf("error %v of a panic, want one line that says crashed", err)
		}
	})
	t.Run("memory of the garbage collector", func(t *testing.T) {
		out := runProbe(t, nil, crashProbe) // with the same status
		const stderr = "SIGSEGV: segmentation violation\nPC=0x437efd m=0 sigcode=1 addr=0x0\n\ngoroutine 0 gp=0x1e234c0"
		err := childDeath(registry.DefaultConfig(), child.Exit{Err: out.err, Stderr: stderr})
		if !errdefs.IsResourceExhausted(err) {
			t.Errorf("error %v, want a resource exhausted", err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		if child.HardMemory(1) == 0 {
			t.Skip("the race detector needs unlimited memory")
		}
		out := runProbe(t, nil, memoryProbe)
		err := childDeath(registry.DefaultConfig(), child.Exit{Err: out.err, Stderr: out.stderr})
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "pull_memory") {
			t.Errorf("error %v without memory, want one that names pull_memory: %.500s", err, out.stderr)
		}
	})
}
