package ocitest

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci/runc"
	"github.com/podd-project/podd/oci/runc/starter"
	"github.com/podd-project/podd/oci/runc/thaw"
)

// Machine is a Harness on the real machine, with what white-box tests need to know.
type Machine struct {
	Harness
	Config runc.Config
	// Rootfs holds busybox with its applets as files.
	Rootfs string
	// Cgroup is the cgroupsPath that is the parent of all containers of Spec.
	Cgroup string
}

// Binary finds a binary: in the repository's bin directory, where `make tools` puts them, then in PATH. A
// test that needs one fails without it.
func Binary(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(binDir(), name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no %s in bin (make tools) or PATH", name)
	}
	return path
}

// binDir is the repository's bin directory.
func binDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "bin")
}

// Real makes a Machine with the OCI runtime of that name, in directories of its own. Its clean-up fails the
// test if it left a process, cgroup, mount, file, descriptor or goroutine.
func Real(t testing.TB, name string) *Machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("containers need root")
	}
	dir := shortDir(t)
	leaks := watchLeaks(t)
	m := &Machine{Rootfs: filepath.Join(dir, "rootfs"), Cgroup: "/podd-test-" + filepath.Base(dir)}
	m.LogDir = filepath.Join(dir, "log")
	if err := os.Mkdir(m.LogDir, 0o700); err != nil {
		t.Fatal(err)
	}
	buildRootfs(t, m.Rootfs)
	m.Config = runc.Config{
		Name: name, Path: Binary(t, name), Conmon: Binary(t, "conmon"),
		Root: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
		CRIU: "criu", SearchPath: []string{binDir()},
	}
	for path, install := range map[*string]func(string) (string, error){
		&m.Config.Thaw: thaw.Install, &m.Config.Starter: starter.Install,
	} {
		installed, err := install(filepath.Join(dir, "libexec"))
		if err != nil {
			t.Fatal(err)
		}
		*path = installed
	}
	m.Bundles = m.Config.RunDir
	m.New = func() Runtime { return runc.New(m.Config) }
	m.Spec = func(args ...string) *specs.Spec { return m.spec(args) }
	leaks.dir, leaks.cgroup = dir, m.Cgroup
	return m
}

// shortDir is like t.TempDir, short enough for a socket's address, and gone only after the leak check.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "oci")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// applets are the commands in the root filesystem.
var applets = []string{"sh", "sleep", "true", "false", "echo", "cat", "ls", "ps", "kill", "yes", "head", "dd", "tail",
	"setsid", "seq", "stty", "wc", "grep", "readlink", "tr", "rm", "mkdir", "id", "env", "cut"}

// buildRootfs makes a root filesystem of Debian's busybox-static.
func buildRootfs(t testing.TB, dir string) {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("busybox-static is needed: %v", err)
	}
	for _, d := range []string{"bin", "dev", "proc", "sys", "tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(dir, "bin", "busybox")
	if err := os.WriteFile(first, busybox, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range applets {
		if err := os.Link(first, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
}

// spec is a small container: own mount, PID, IPC and UTS namespace, the host's network.
func (m *Machine) spec(args []string) *specs.Spec {
	caps := []string{"CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE"}
	return &specs.Spec{
		Version: "1.0.2",
		Process: &specs.Process{
			Args: args, Cwd: "/", Env: []string{"PATH=/bin"}, NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
		},
		Root: &specs.Root{Path: m.Rootfs},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{
				Destination: "/dev/pts", Type: "devpts", Source: "devpts",
				Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"},
			},
		},
		Linux: &specs.Linux{
			CgroupsPath: filepath.Join(m.Cgroup, unique()),
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace},
			},
		},
	}
}

func unique() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
