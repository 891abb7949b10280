package shim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	statuses "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// TestNothingStartsAfterThePod: when the infra container has ended, also when it is deleted, nothing is created or
// started in the pod.
func TestNothingStartsAfterThePod(t *testing.T) {
	p := podOfUnikernels(t)
	late := p.created("late")
	p.kill("infra", unix.SIGKILL)
	if !late.hasEnded() {
		t.Error("the pod has ended, and a container in it has not")
	}
	check := func(when string) {
		t.Helper()
		p.created(when) // as one whose creation had begun before
		_, err := p.Start(t.Context(), &task.StartRequest{ID: when})
		p.wantEnded(when+": Start", err)
		p.kill(when, unix.SIGKILL)
		_, err = p.Create(t.Context(), &task.CreateTaskRequest{ID: "new", Bundle: p.bundle})
		p.wantEnded(when+": Create", err)
	}
	check("killed")
	if _, err := p.Delete(t.Context(), &task.DeleteRequest{ID: "infra"}); err != nil {
		t.Fatal(err)
	}
	check("deleted")
}

// TestInfraEndsFirst: a pod has ended before its containers are ended, however long that takes.
func TestInfraEndsFirst(t *testing.T) {
	p := podOfUnikernels(t)
	for id := range strings.FieldsSeq("a b c d e f g h") {
		p.created(id)
	}
	p.changing.Lock() // as a start that takes long
	done := make(chan struct{})
	go func() { p.kill("infra", unix.SIGKILL); close(done) }()
	select {
	case <-p.members["infra"].ended:
	case <-time.After(10 * time.Second):
		t.Error("the pod waits for its containers to end")
	}
	p.changing.Unlock()
	<-done
}

// TestSharedProcesses: a caller may name the pod's processes by the pid that it was told, as containerd does in pods
// that share them; other processes of the host are refused.
func TestSharedProcesses(t *testing.T) {
	for path, want := range map[string]bool{
		fmt.Sprintf("/proc/%d/ns/pid", os.Getpid()): true, "/proc/1/ns/pid": false,
	} {
		spec := &specs.Spec{Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace, Path: path}},
		}}
		if err := refuseForUnikernel(&task.CreateTaskRequest{}, spec); (err == nil) != want {
			t.Errorf("a unikernel with the PID namespace %s: %v, want it accepted = %v", path, err, want)
		}
	}
}

// TestSignalZero: asking whether a container exists does not end it.
func TestSignalZero(t *testing.T) {
	p := podOfUnikernels(t)
	u := p.created("c")
	p.kill("c", 0)
	if got := u.status(); got != statuses.Status_CREATED {
		t.Errorf("status after signal 0 = %s, want created", got)
	}
}

// TestImageStaysMounted: the jail gets the files of an image that the shim has mounted, which is not mounted after the
// end. Needs root.
func TestImageStaysMounted(t *testing.T) {
	needRoot(t)
	p := podOfUnikernels(t)
	image := t.TempDir()
	kernel := make([]byte, 64)
	copy(kernel, "\x7fELF")
	kernel[16], kernel[18] = 2, 62 // a program for x86-64
	if err := os.WriteFile(filepath.Join(image, "kernel"), kernel, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := p.Create(t.Context(), &task.CreateTaskRequest{ID: "c", Bundle: p.bundle,
		Rootfs: []*types.Mount{{Type: "bind", Source: image, Options: []string{"rbind", "ro"}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(p.root, unix.MNT_DETACH) })
	j, err := p.newJail(p.members["c"], false)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	p.kill("c", unix.SIGKILL)
	if left, err := os.ReadDir(p.root); err != nil || len(left) > 0 {
		t.Errorf("%s after the end has %v, %v, want nothing", p.root, left, err)
	}
	err = j.Do(func() error { _, err := os.Stat("/kernel"); return err })
	if err != nil {
		t.Errorf("the kernel in the jail: %v", err)
	}
}

// TestNoTapStaysOpen: a machine that does not start leaves no tap open, and the container can be started again. Needs
// root, ip (Debian package iproute2) and /dev/net/tun.
func TestNoTapStaysOpen(t *testing.T) {
	needRoot(t)
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip(err)
	}
	p := podOfUnikernels(t)
	p.infra.Linux.Namespaces[0].Path = networkOfPod(t)
	image, err := os.Create(filepath.Join(t.TempDir(), "kernel"))
	if err != nil {
		t.Fatal(err)
	}
	u := p.created("c")
	u.bundle, u.files.Kernel = p.bundle, image
	u.arguments = []string{strings.Repeat("a", 4096)}
	defer u.release()
	for range 2 {
		_, err := p.Start(t.Context(), &task.StartRequest{ID: "c"})
		if err == nil || !strings.Contains(err.Error(), "2047 bytes") {
			t.Fatalf("Start = %v, want that the arguments are too long", err)
		}
		if open := openTaps(t); open > 0 {
			t.Errorf("%d taps are open after a start that failed, want none", open)
		}
	}
}

// needRoot skips the test for users that may not mount, as root in a container without privileges.
func needRoot(t *testing.T) {
	t.Helper()
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0)
	if os.Geteuid() != 0 || err != nil || may != 1 {
		t.Skip("needs root with CAP_SYS_ADMIN")
	}
}

// networkOfPod returns the path of a new network namespace with an interface that is up.
func networkOfPod(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("sh", "-c",
		"ip link add eth0 type veth peer name peer && ip link set eth0 up && echo up && exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("make a network: %q, %v", line, err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
}

// openTaps is how many taps this process has open.
func openTaps(t *testing.T) (open int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if target, _ := os.Readlink(f); target == "/dev/net/tun" {
			open++
		}
	}
	return open
}

// testedPod is a pod whose infra container runs. bundle is one that other containers share, root its root directory.
type testedPod struct {
	*unikernels
	testing.TB
	bundle, root string
}

func podOfUnikernels(t *testing.T) testedPod {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(specs.Spec{
		Process: &specs.Process{Args: []string{"/kernel"}, Cwd: "/"}, Root: &specs.Root{Path: "rootfs"},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{{Type: specs.NetworkNamespace, Path: "/proc/self/ns/net"}}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := testedPod{newUnikernels(nil), t, dir, filepath.Join(dir, "rootfs")}
	if _, err := p.Create(t.Context(), &task.CreateTaskRequest{ID: "infra", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Start(t.Context(), &task.StartRequest{ID: "infra"}); err != nil {
		t.Fatal(err)
	}
	return p
}

// created adds a container that is created, without an image.
func (p testedPod) created(id string) *unikernel {
	u := &unikernel{id: id, ended: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members[id] = u
	return u
}

func (p testedPod) kill(id string, signal unix.Signal) {
	p.Helper()
	if _, err := p.Kill(p.Context(), &task.KillRequest{ID: id, Signal: uint32(signal)}); err != nil {
		p.Errorf("Kill = %v", err)
	}
}

// wantEnded fails the test unless the error says that a call came too late.
func (p testedPod) wantEnded(what string, err error) {
	p.Helper()
	if !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) || !strings.Contains(err.Error(), "the pod has ended") {
		p.Errorf("%s = %v, want a failed precondition: the pod has ended", what, err)
	}
}
