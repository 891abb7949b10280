package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nobody is the uid and gid of the local user of these tests.
const nobody = 65534

// asNobody is the variable that makes the test binary a program of a local user; its value names one of localPrograms.
const asNobody = "PODD_TEST_AS_NOBODY"

// localPrograms are what a local user runs against podd's directories.
var localPrograms = map[string]func() error{"open": openAll, "lock": holdLock}

// TestLocalUsers: a user of the node who is not root can open nothing of podd's, and so lock nothing.
func TestLocalUsers(t *testing.T) {
	t.Parallel()
	k := start(t, append(runcShim(), `runtime.handlers.crun.type = "oci"`)...)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"open nothing", nothingOpens},
		{"lock nothing", nothingLocks},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

// nothingOpens makes pods under every kind of handler and monitor, restarts podd, and tries every path below root and
// run. The one exception is the root filesystem of infra containers, which is the same on every node: runc opens its
// directories as the root of a user namespace, gVisor its program as the container's user. podd locks nothing in it.
func nothingOpens(k *kubelet) {
	control := k.Path("open-to-all")
	k.ok("write a file for everyone", os.WriteFile(control, nil, 0o644))
	busyNode(k)
	k.removeImage(nginx)
	k.pull(nginx)
	k.ok("restart podd", k.Restart(k.ctx(), k.Kill9))
	k.sleeper()

	paths := []string{control}
	for _, top := range []string{k.Path("root"), k.Path("run")} {
		k.ok("list "+top, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil: // the path has vanished
			case path == k.Path("root", "pause"):
				return fs.SkipDir
			case path != top: // which the test made itself
				paths = append(paths, path)
			}
			return nil
		}))
	}
	cmd := localUser(k, "open")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00"))
	out, err := cmd.Output()
	k.ok("open every path as nobody", err)
	opened := strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' })
	if len(opened) == 0 || opened[0] != fmt.Sprintf("%q: opened", control) {
		k.Fatalf("opened = %q, want first the file for everyone", opened)
	}
	for _, o := range opened[1:] {
		k.Errorf("uid %d: %s, want permission denied", nobody, o)
	}
	k.Logf("tried %d paths", len(paths))
}

// busyNode runs pods that use every part of podd that writes files: infra containers, shims, both runtimes, volumes of
// images, a user namespace.
func busyNode(k *kubelet) {
	k.have("docker.io/podd/data:latest")
	mapping := []*cri.IDMapping{{HostId: 100000, Length: 65536}}
	own, shared := cri.NamespaceMode_CONTAINER, cri.NamespaceMode_POD
	mapped := &cri.NamespaceOption{Pid: shared,
		UsernsOptions: &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: mapping, Gids: mapping}}
	for _, p := range []struct {
		handler string
		options *cri.NamespaceOption
	}{
		{"runc", &cri.NamespaceOption{Pid: shared}},
		{"crun", &cri.NamespaceOption{Pid: own}},
		{"runc-shim", &cri.NamespaceOption{Pid: own}},
		{"gvisor", &cri.NamespaceOption{Pid: own}},
		{"runc", mapped},
	} {
		cfg := k.podConfig(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.NamespaceOptions = p.options })
		pod := k.runPod(cfg, p.handler)
		id, _ := k.runIn(pod, cfg, []string{"sh", "-c", "trap exit TERM; sleep 10000 & wait"}, func(c *cri.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions = p.options
			c.Mounts = []*cri.Mount{{ContainerPath: "/v", Readonly: true,
				Image: &cri.ImageSpec{Image: "docker.io/podd/data:latest"}}}
		})
		if got := k.exec(id, "echo works"); got != "works\n" {
			k.Errorf("output of an exec under %s = %q, want %q", p.handler, got, "works\n")
		}
	}
}

// nothingLocks tries to hold each lock file of the image store; a pull and a start of podd go on.
func nothingLocks(k *kubelet) {
	if held := holdLocks(k); held > 0 {
		k.Errorf("a local user holds %d locks, want 0", held)
	}
	goesOn(k)
}

func goesOn(k *kubelet) {
	done := make(chan error, 1)
	go func() {
		k.removeImage(nginx)
		_, err := k.tryPull(nginx, nil)
		if err == nil {
			err = k.Restart(k.ctx(), k.Stop)
		}
		done <- err
	}()
	select {
	case err := <-done:
		k.ok("pull and restart", err)
	case <-time.After(30 * time.Second):
		k.Fatal("a pull and a restart are not done after 30 s, want them to wait for no local user")
	}
}

// storeLocks returns the lock files in the directory of the image store that a local user can search.
func storeLocks(k *kubelet) []string {
	found, err := filepath.Glob(k.Path("root", "storage", "*.lock"))
	k.ok("find lock files", err)
	if len(found) == 0 {
		k.Fatal("the image store has no lock files, want storage.lock at least")
	}
	return found
}

// holdLocks has a local user lock each lock file until the test ends, and returns how many could be locked.
func holdLocks(k *kubelet) (held int) {
	for _, path := range storeLocks(k) {
		cmd := localUser(k, "lock", path)
		in, err := cmd.StdinPipe()
		k.ok("pipe", err)
		out, err := cmd.StdoutPipe()
		k.ok("pipe", err)
		k.ok("start a program of nobody", cmd.Start())
		k.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		k.ok("read what the program did", err)
		if line == "locked\n" {
			held++
		}
	}
	return held
}

// localUser returns a command that runs one of localPrograms as uid nobody.
func localUser(k *kubelet, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.ctx(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asNobody+"="+program)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}

// openAll opens each path of its input, for reading and for both, and prints those for which the answer is not that
// permission is denied. A path that has vanished is left out.
func openAll() error {
	input, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	for path := range strings.SplitSeq(string(input), "\x00") {
		for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_WRONLY} {
			fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == nil {
				unix.Close(fd)
				fmt.Printf("%q: opened\n", path)
				break
			}
			if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EISDIR) {
				fmt.Printf("%q: %v\n", path, err)
			}
		}
	}
	return nil
}

// holdLock takes a read lock on the file of its first argument, as the image store's library does, says so, and holds
// it until its input ends.
func holdLock() error {
	fd, err := unix.Open(os.Args[1], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK})
	}
	if err != nil {
		fmt.Println(err)
		return nil
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
