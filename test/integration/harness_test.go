package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
	"github.com/podd-project/podd/test/leak"
)

// The images that most tests use.
const (
	busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"
	nginx   = "registry.k8s.io/e2e-test-images/nginx:1.14-2"
)

// poddBinary is the daemon under test.
var poddBinary string

// raced are the tests in which the daemon does most at the same time. They run it with the race detector, which takes
// two to four times the CPU time. With RACE_ALL set all tests do.
var raced = []string{
	"TestContainers", "TestExecOutputBudget", "TestHistory", "TestIdleStreamingConnections", "TestLoad", "TestMixed",
	"TestObserved", "TestPlugins", "TestPods", "TestReload", "TestReloadReachesAllParts", "TestRestart", "TestStats",
	"TestStreaming", "TestStuckDependencies",
}

// TestRaced: raced and long have names of tests only.
func TestRaced(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	var all []byte
	for _, f := range files {
		text, errRead := os.ReadFile(f)
		all, err = append(all, text...), errors.Join(err, errRead)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(raced, long) {
		if !bytes.Contains(all, []byte("\nfunc "+name+"(t *testing.T)")) {
			t.Errorf("there is no %s", name)
		}
	}
}

// binaryFor returns the daemon for a test.
func binaryFor(t *testing.T) string {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	if os.Getenv("PODD_BINARY") != "" || os.Getenv("RACE_ALL") != "" || !slices.Contains(raced, name) {
		return poddBinary
	}
	binary, err := raceBinary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// raceBinary builds the daemon with the race detector, once.
var raceBinary = sync.OnceValues(func() (string, error) { return buildDaemon(true) })

// buildDaemon builds podd into bin/.
func buildDaemon(race bool) (string, error) {
	repo, err := daemon.Repository()
	if err != nil {
		return "", err
	}
	tags := "containers_image_openpgp,nri_no_wasm,grpcnotrace"
	binary, flags, cgo := filepath.Join(repo, "bin", "podd-test"), "-race=false", "CGO_ENABLED=0"
	if race {
		tags += ",exclude_graphdriver_btrfs"
		binary, flags, cgo = filepath.Join(repo, "bin", "podd-race"), "-race=true", "CGO_ENABLED=1"
	}
	return binary, runStep(repo, cgo, "go", "build", flags, "-tags", tags, "-ldflags", "-X main.version=v0.0.0-test",
		"-o", binary, "./cmd/podd")
}

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

// run builds the daemon and prepares the host, then runs the tests.
func run(m *testing.M) int {
	if program := localPrograms[os.Getenv(asNobody)]; program != nil {
		if err := program(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the integration tests run containers and need root")
		return 1
	}
	if err := leaveOut(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	repo, err := daemon.Repository()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if poddBinary = os.Getenv("PODD_BINARY"); poddBinary == "" {
		if poddBinary, err = buildDaemon(os.Getenv("RACE_ALL") != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	if err := runStep(repo, "", "test/host/setup.sh"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	utilruntime.ErrorHandlers = nil // of the streaming clients, which log each connection that fails
	return m.Run()
}

// runStep runs a command in dir, with an additional variable. The error has the command's output.
func runStep(dir, variable string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), variable)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// kubelet calls the daemon as a kubelet does. Its methods fail the test if the call fails, except those named try.
type kubelet struct {
	testing.TB
	*daemon.Daemon
	registry *images.Registry
	names    *atomic.Int64
	// keep are the ids of pods that the end of a subtest does not remove.
	keep []string
}

// start runs a podd for the test, with configuration keys as in Options.Set. When the test ends its pods are removed,
// and a leak check runs twice: while podd runs, and after it has been stopped.
func start(t *testing.T, set ...string) *kubelet {
	t.Helper()
	return startWith(t, daemon.Options{Set: set})
}

func startWith(t *testing.T, o daemon.Options) *kubelet {
	t.Helper()
	o.Binary, o.Registry = binaryFor(t), images.Serve(t)
	d, err := daemon.New(o)
	if err != nil {
		t.Fatal(err)
	}
	leak.Check(t, d.Leak())
	t.Cleanup(func() { closeDaemon(t, d) })
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{TB: t, Daemon: d, registry: o.Registry, names: &atomic.Int64{}}
	k.checkLeaks(t)
	return k
}

// closeDaemon stops the daemon. It logs the end of the daemon's log if the test has failed.
func closeDaemon(t *testing.T, d *daemon.Daemon) {
	for _, a := range d.Alarms() {
		t.Errorf("daemon's log has a data race or panic, want none:\n%s", a)
	}
	if t.Failed() {
		t.Logf("errors and warnings of podd:\n%s\nend of podd's log:\n%s", d.LogProblems(60), d.LogTail(60))
	}
	if leak.Kept(t) {
		if err := d.Keep(); err != nil {
			t.Errorf("stop podd: %v", err)
		}
		t.Logf("kept %s, its pods keep running; start podd again: %s\nremove everything: %s wipe --config %s --yes; "+
			"ip link del %s; rm -r %[1]s; find /sys/fs/cgroup -depth -type d -name %s -exec rmdir {} +",
			d.Dir, d.Command(), poddBinary, d.Path("podd.toml"), d.Bridge, filepath.Base(d.CgroupParent))
		return
	}
	if err := d.Close(); err != nil {
		t.Errorf("close podd: %v", err)
	}
}

// sub returns the kubelet of a subtest, at whose end its pods are removed and a leak check runs.
func (k *kubelet) sub(t *testing.T) *kubelet {
	t.Helper()
	s := *k
	s.TB = t
	s.checkLeaks(t)
	return &s
}

// checkLeaks takes a snapshot now; at the test's end it removes all pods and fails the test for what is new since.
func (k *kubelet) checkLeaks(t *testing.T) {
	t.Helper()
	before, err := leak.Take(k.Leak())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if leak.Kept(t) {
			return
		}
		if !k.Running() {
			t.Error("podd is not running at the end of the test, want it running")
			return
		}
		if err := k.RemovePods(context.Background(), k.keep...); err != nil {
			t.Errorf("remove pods: %v", err)
		}
		o := k.Leak()
		o.Wait = collectionTime
		lines, err := before.WaitExcept(context.Background(), o, func(d leak.Difference) bool {
			// The CNI plugin never removes the bridge and its addresses, the kubelet removes the cgroup parent, and a
			// handler of type shim keeps the socket that its shims send events to.
			l := d.String()
			return strings.Contains(l, "link     "+k.Bridge) || strings.HasSuffix(l, filepath.Base(k.CgroupParent)) ||
				strings.HasSuffix(l, "/events.sock")
		})
		if err != nil {
			t.Errorf("leak check: %v", err)
		}
		for _, l := range lines {
			t.Errorf("leak with podd running: %s", l)
		}
	})
}

// collectionTime is how long what an interrupted operation has left may exist: podd's garbage collection tries again
// after 10 s, and then after 20.
const collectionTime = 40 * time.Second

// ok fails the test if err is not nil.
func (k *kubelet) ok(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

// refused fails the test unless err has one of the codes and its message contains words, ignoring case.
func (k *kubelet) refused(what string, err error, words string, want ...codes.Code) {
	k.Helper()
	if err == nil {
		k.Errorf("%s: error = nil, want %v with %q", what, want, words)
		return
	}
	got := status.Code(err)
	for _, c := range want {
		if got == c && strings.Contains(strings.ToLower(err.Error()), strings.ToLower(words)) {
			return
		}
	}
	k.Errorf("%s: error = %v, want %v with %q", what, err, want, words)
}

// eventually waits until f returns true, three minutes at most: a machine with four tests at once may be that slow.
func (k *kubelet) eventually(what string, f func() bool) {
	k.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	k.Fatalf("not after three minutes, want: %s", what)
}

func (k *kubelet) ctx() context.Context { return k.Context() }

// --- pods

// podConfig returns the configuration of a pod with a unique name.
func (k *kubelet) podConfig(mods ...func(*cri.PodSandboxConfig)) *cri.PodSandboxConfig {
	n := k.names.Add(1)
	name := fmt.Sprintf("pod-%d", n)
	cfg := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "test", Uid: fmt.Sprintf("uid-%d-%d", os.Getpid(), n)},
		Hostname:     name,
		LogDirectory: k.Path("logs", name),
		Labels:       map[string]string{"app": name},
		Annotations:  map[string]string{"podd.test/name": name},
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: k.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			}},
	}
	for _, m := range mods {
		m(cfg)
	}
	return cfg
}

// pod runs a pod with the default handler.
func (k *kubelet) pod(mods ...func(*cri.PodSandboxConfig)) (string, *cri.PodSandboxConfig) {
	k.Helper()
	cfg := k.podConfig(mods...)
	return k.runPod(cfg, ""), cfg
}

func (k *kubelet) runPod(cfg *cri.PodSandboxConfig, handler string) string {
	k.Helper()
	k.ok("make the pod's log directory", os.MkdirAll(cfg.LogDirectory, 0o755))
	r, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
	k.ok("RunPodSandbox", err)
	return r.PodSandboxId
}

func (k *kubelet) podStatus(id string) *cri.PodSandboxStatus {
	k.Helper()
	r, err := k.Runtime.PodSandboxStatus(k.ctx(), &cri.PodSandboxStatusRequest{PodSandboxId: id})
	k.ok("PodSandboxStatus", err)
	return r.Status
}

func (k *kubelet) stopPod(id string) {
	k.Helper()
	_, err := k.Runtime.StopPodSandbox(k.ctx(), &cri.StopPodSandboxRequest{PodSandboxId: id})
	k.ok("StopPodSandbox", err)
}

func (k *kubelet) removePod(id string) {
	k.Helper()
	_, err := k.Runtime.RemovePodSandbox(k.ctx(), &cri.RemovePodSandboxRequest{PodSandboxId: id})
	k.ok("RemovePodSandbox", err)
}

func (k *kubelet) pods(f *cri.PodSandboxFilter) []*cri.PodSandbox {
	k.Helper()
	r, err := k.Runtime.ListPodSandbox(k.ctx(), &cri.ListPodSandboxRequest{Filter: f})
	k.ok("ListPodSandbox", err)
	return r.Items
}

// --- containers

// containerConfig returns the configuration of a container that runs the command in busybox.
func (k *kubelet) containerConfig(command []string, mods ...func(*cri.ContainerConfig)) *cri.ContainerConfig {
	n := k.names.Add(1)
	cfg := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: fmt.Sprintf("ctr-%d", n)},
		Image:    &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox},
		Command:  command,
		LogPath:  fmt.Sprintf("ctr-%d.log", n),
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
			},
		},
	}
	for _, m := range mods {
		m(cfg)
	}
	return cfg
}

func (k *kubelet) tryCreate(pod string, cfg *cri.ContainerConfig, podCfg *cri.PodSandboxConfig) (string, error) {
	k.Helper()
	k.have(busybox)
	r, err := k.Runtime.CreateContainer(k.ctx(), &cri.CreateContainerRequest{PodSandboxId: pod, Config: cfg,
		SandboxConfig: podCfg})
	return r.GetContainerId(), err
}

func (k *kubelet) create(pod string, cfg *cri.ContainerConfig, podCfg *cri.PodSandboxConfig) string {
	k.Helper()
	id, err := k.tryCreate(pod, cfg, podCfg)
	k.ok("CreateContainer", err)
	return id
}

func (k *kubelet) startContainer(id string) {
	k.Helper()
	_, err := k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
	k.ok("StartContainer", err)
}

// runIn creates and starts a container and returns its id and config.
func (k *kubelet) runIn(pod string, podCfg *cri.PodSandboxConfig, command []string,
	mods ...func(*cri.ContainerConfig)) (string, *cri.ContainerConfig) {
	k.Helper()
	cfg := k.containerConfig(command, mods...)
	id := k.create(pod, cfg, podCfg)
	k.startContainer(id)
	return id, cfg
}

// sleeper runs a pod with one container that sleeps.
func (k *kubelet) sleeper(mods ...func(*cri.ContainerConfig)) (pod, container string) {
	k.Helper()
	pod, cfg := k.pod()
	container, _ = k.runIn(pod, cfg, []string{"sleep", "10000"}, mods...)
	return pod, container
}

// output runs a shell command in a container of a new pod, waits for its exit, and returns the content of its log.
func (k *kubelet) output(command string, mods ...func(*cri.ContainerConfig)) (stdout string, exit int32) {
	k.Helper()
	pod, podCfg := k.pod()
	return k.outputIn(pod, podCfg, command, mods...)
}

func (k *kubelet) outputIn(pod string, podCfg *cri.PodSandboxConfig, command string,
	mods ...func(*cri.ContainerConfig)) (stdout string, exit int32) {
	k.Helper()
	id, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", command}, mods...)
	st := k.exited(id)
	return k.logText(podCfg, cfg), st.ExitCode
}

func (k *kubelet) container(id string) *cri.ContainerStatus {
	k.Helper()
	r, err := k.Runtime.ContainerStatus(k.ctx(), &cri.ContainerStatusRequest{ContainerId: id})
	k.ok("ContainerStatus", err)
	return r.Status
}

// exited waits until the container has exited.
func (k *kubelet) exited(id string) (st *cri.ContainerStatus) {
	k.Helper()
	k.eventually("container exited", func() bool {
		st = k.container(id)
		return st.State == cri.ContainerState_CONTAINER_EXITED
	})
	return st
}

func (k *kubelet) stopContainer(id string, grace int64) {
	k.Helper()
	_, err := k.Runtime.StopContainer(k.ctx(), &cri.StopContainerRequest{ContainerId: id, Timeout: grace})
	k.ok("StopContainer", err)
}

func (k *kubelet) removeContainer(id string) {
	k.Helper()
	_, err := k.Runtime.RemoveContainer(k.ctx(), &cri.RemoveContainerRequest{ContainerId: id})
	k.ok("RemoveContainer", err)
}

func (k *kubelet) containers(f *cri.ContainerFilter) []*cri.Container {
	k.Helper()
	r, err := k.Runtime.ListContainers(k.ctx(), &cri.ListContainersRequest{Filter: f})
	k.ok("ListContainers", err)
	return r.Containers
}

// exec runs a shell command in a container and fails the test unless its exit code is 0.
func (k *kubelet) exec(id, command string) string {
	k.Helper()
	r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", command},
		Timeout: 30})
	k.ok("ExecSync "+command, err)
	if r.ExitCode != 0 {
		k.Fatalf("ExecSync %s: exit code = %d, want 0: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
	}
	return string(r.Stdout)
}

// --- images

// have pulls the image unless it is in the store.
func (k *kubelet) have(image string) {
	k.Helper()
	r, err := k.Images.ImageStatus(k.ctx(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
	k.ok("ImageStatus", err)
	if r.Image == nil {
		k.pull(image)
	}
}

func (k *kubelet) pull(image string) string {
	k.Helper()
	r, err := k.tryPull(image, nil)
	k.ok("PullImage "+image, err)
	return r
}

func (k *kubelet) tryPull(image string, auth *cri.AuthConfig) (string, error) {
	r, err := k.Images.PullImage(k.ctx(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}, Auth: auth})
	return r.GetImageRef(), err
}

func (k *kubelet) image(name string) *cri.Image {
	k.Helper()
	r, err := k.Images.ImageStatus(k.ctx(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	k.ok("ImageStatus", err)
	return r.Image
}

func (k *kubelet) removeImage(name string) {
	k.Helper()
	_, err := k.Images.RemoveImage(k.ctx(), &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}})
	k.ok("RemoveImage", err)
}

// --- logs

// logLine is one line of a CRI log: time, stream, tags and content.
type logLine struct{ time, stream, tag, text string }

func (k *kubelet) logLines(podCfg *cri.PodSandboxConfig, cfg *cri.ContainerConfig) []logLine {
	k.Helper()
	data, err := os.ReadFile(filepath.Join(podCfg.LogDirectory, cfg.LogPath))
	k.ok("read the container's log", err)
	var lines []logLine
	for l := range bytes.Lines(data) {
		if !bytes.HasSuffix(l, []byte("\n")) {
			break // it is being written: a reader can see the first part of a write that spans two pages
		}
		f := strings.SplitN(strings.TrimSuffix(string(l), "\n"), " ", 4)
		if len(f) != 4 {
			k.Fatalf("line %q, want the CRI log format of 4 fields", l)
		}
		lines = append(lines, logLine{f[0], f[1], f[2], f[3]})
	}
	return lines
}

// logText returns what the container printed, stdout and stderr in the order of the log.
func (k *kubelet) logText(podCfg *cri.PodSandboxConfig, cfg *cri.ContainerConfig) string {
	k.Helper()
	var b strings.Builder
	for _, l := range k.logLines(podCfg, cfg) {
		b.WriteString(l.text)
		if l.tag == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
