package workloads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
)

// memory is the limit of each pod.
const memory = 512 << 20

// grace is the grace period of a stop; a program that needs it to the end has not stopped by itself.
const grace = 30 * time.Second

// cell is one program on one handler: a pod with one container.
type cell struct {
	testing.TB
	*daemon.Daemon
	program
	handler string

	pod     string
	podCfg  *cri.PodSandboxConfig
	ip      string
	attempt int
	// id and log are the container's.
	id, log string
	// served counts the calls of serve, over all attempts.
	served atomic.Int64
}

// check plays the life of the pod.
func (c *cell) check() {
	c.runPod()
	c.startProgram()
	c.limits()
	c.killDaemon()
	c.stop()
	if c.data == nil {
		return
	}
	c.startProgram()
	c.verify("after a restart")
	if c.keepsData {
		c.kill()
		c.startProgram()
		c.verify("after SIGKILL")
	}
	c.stop()
}

// runPod runs the pod as a kubelet does for one with limits.
func (c *cell) runPod() {
	name := c.name + "-" + c.handler
	c.podCfg = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "workloads", Uid: name},
		Hostname:     name,
		LogDirectory: c.Path("logs", name),
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent: c.CgroupParent,
			Resources:    resources(),
			Overhead:     &cri.LinuxContainerResources{MemoryLimitInBytes: overhead[c.handler]},
			SecurityContext: &cri.LinuxSandboxSecurityContext{Privileged: c.privileged,
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
				Seccomp:          &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}},
		},
	}
	c.limitPod()
	must(c, os.MkdirAll(c.podCfg.LogDirectory, 0o755))
	must(c, os.MkdirAll(c.volume(), 0o777))
	must(c, os.Chmod(c.volume(), 0o777))
	r, err := c.Runtime.RunPodSandbox(c.Context(),
		&cri.RunPodSandboxRequest{Config: c.podCfg, RuntimeHandler: c.handler})
	must(c, err)
	c.pod = r.PodSandboxId
	status, err := c.Runtime.PodSandboxStatus(c.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: c.pod})
	must(c, err)
	c.ip = status.Status.Network.Ip
}

// overhead is that of the RuntimeClass of a handler, by contrib/kubernetes.
var overhead = map[string]int64{"gvisor-shim": 64 << 20, "vm": 320 << 20}

// limitPod sets the limits of the pod's cgroup, as the kubelet does. The daemon has one pod at a time, whose cgroup is
// the parent of all. Where systemd owns the parent there are only the containers' limits.
func (c *cell) limitPod() {
	if strings.HasSuffix(c.CgroupParent, ".slice") {
		return
	}
	limit := memory + overhead[c.handler]
	for file, value := range map[string]string{
		"memory/%s/memory.limit_in_bytes": fmt.Sprint(limit), "cpu/%s/cpu.cfs_quota_us": "100000",
		"%s/memory.max": fmt.Sprint(limit), "%s/cpu.max": "100000 100000",
	} {
		path := filepath.Join("/sys/fs/cgroup", fmt.Sprintf(file, c.CgroupParent))
		controller := filepath.Dir(filepath.Dir(path))
		if _, err := os.Stat(filepath.Join(controller, "cgroup.procs")); err != nil {
			continue // the other version of cgroups
		}
		must(c, os.MkdirAll(filepath.Dir(path), 0o755))
		must(c, os.WriteFile(path, []byte(value), 0))
	}
}

// volume is the host's directory of the pod's volume, which containers have at /data.
func (c *cell) volume() string { return c.Path("volumes", c.name+"-"+c.handler) }

// resources are the limits of the container.
func resources() *cri.LinuxContainerResources {
	return &cri.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: 100_000, CpuShares: 512, MemoryLimitInBytes: memory,
		OomScoreAdj: 900}
}

// startProgram starts the container, again if there was one, and waits until it serves.
func (c *cell) startProgram() {
	c.Helper()
	c.attempt++
	cfg := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: c.name, Attempt: uint32(c.attempt)},
		Image:    &cri.ImageSpec{Image: imageName(c.name), UserSpecifiedImage: imageName(c.name)},
		LogPath:  fmt.Sprintf("%d.log", c.attempt),
		Mounts:   []*cri.Mount{{HostPath: c.volume(), ContainerPath: "/data"}},
		Linux: &cri.LinuxContainerConfig{
			Resources: resources(),
			SecurityContext: &cri.LinuxContainerSecurityContext{
				NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
				Privileged:       c.privileged,
			},
		},
	}
	if security := cfg.Linux.SecurityContext; !c.privileged {
		security.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		security.MaskedPaths = []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"}
		security.ReadonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	}
	if c.configure != nil {
		c.configure(cfg)
	}
	c.log = filepath.Join(c.podCfg.LogDirectory, cfg.LogPath)
	r, err := c.Runtime.CreateContainer(c.Context(), &cri.CreateContainerRequest{PodSandboxId: c.pod, Config: cfg,
		SandboxConfig: c.podCfg})
	must(c, err)
	c.id = r.ContainerId
	_, err = c.Runtime.StartContainer(c.Context(), &cri.StartContainerRequest{ContainerId: c.id})
	must(c, err)
	c.eventually("ready", func() error {
		if c.status().State != cri.ContainerState_CONTAINER_RUNNING {
			c.Fatalf("the container has exited before it served\n%s", c.output())
		}
		return c.serve(c)
	})
	c.served.Add(1)
}

// limits checks that the container sees the pod's memory, not the node's.
func (c *cell) limits() {
	c.Helper()
	seen := int64(-1)
	out := c.exec("cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; " +
		"awk '/MemTotal/{print $2 * 1024}' /proc/meminfo")
	for word := range strings.FieldsSeq(out) {
		if n, err := strconv.ParseFloat(word, 64); err == nil && (seen < 0 || int64(n) < seen) {
			seen = int64(n)
		}
	}
	// The machine of a pod with its own kernel has memory for itself.
	if seen < memory/2 || seen > memory*3/2 {
		c.Errorf("the container sees %d bytes of memory, want about %d:\n%s", seen, memory, out)
	}
	if c.seesLimits != nil {
		c.seesLimits(c)
	}
}

// killDaemon ends podd with SIGKILL under requests and starts it again: no request fails, and podd knows its pod.
func (c *cell) killDaemon() {
	c.Helper()
	before := c.status()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.requests(stop) }()
	wait := func(n int64) {
		c.Helper()
		want := c.served.Load() + n
		c.eventually("more requests", func() error {
			if now := c.served.Load(); now < want && len(ended) == 0 {
				return fmt.Errorf("%d requests, want %d", now, want)
			}
			return nil
		})
	}
	wait(3)
	must(c, c.Kill9())
	if !c.byExec {
		wait(3)
	}
	must(c, c.Start(c.Context()))
	wait(3)
	close(stop)
	if err := <-ended; err != nil {
		c.Fatalf("a request failed while podd was killed and started: %v\n%s", err, c.output())
	}
	after := c.status()
	if after.State != before.State || after.StartedAt != before.StartedAt {
		c.Errorf("status after podd's restart = %v, want %v", after, before)
	}
	c.exec("true")
	c.verify("after podd's restart")
}

// requests has requests served until stop is closed. Those by exec wait while podd does not run, as kubectl's would.
func (c *cell) requests(stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		err := c.serve(c)
		switch {
		case err == nil:
			c.served.Add(1)
		case !c.byExec || !errors.Is(err, errNoExec):
			return err
		}
	}
}

// stop stops the container in its grace period.
func (c *cell) stop() {
	c.Helper()
	began := time.Now()
	_, err := c.Runtime.StopContainer(c.Context(), &cri.StopContainerRequest{ContainerId: c.id,
		Timeout: int64(grace / time.Second)})
	must(c, err)
	st := c.status()
	if took := time.Since(began); st.ExitCode != c.exitCode || took >= grace {
		c.Errorf("exit code = %d (%s) after %s, want %d before %s\n%s", st.ExitCode, st.Reason, took.Round(time.Millisecond),
			c.exitCode, grace, c.output())
	}
	if c.logs != nil {
		c.logs(c, c.output())
	}
}

// kill ends the container with SIGKILL.
func (c *cell) kill() {
	c.Helper()
	_, err := c.Runtime.StopContainer(c.Context(), &cri.StopContainerRequest{ContainerId: c.id})
	must(c, err)
	if st := c.status(); st.ExitCode != 137 {
		c.Errorf("exit code after SIGKILL = %d, want 137", st.ExitCode)
	}
}

// verify checks the program's data.
func (c *cell) verify(when string) {
	c.Helper()
	if c.data == nil {
		return
	}
	if err := c.data(c); err != nil {
		c.Errorf("data %s: %v\n%s", when, err, c.output())
	}
}

func (c *cell) status() *cri.ContainerStatus {
	c.Helper()
	r, err := c.Runtime.ContainerStatus(c.Context(), &cri.ContainerStatusRequest{ContainerId: c.id})
	must(c, err)
	return r.Status
}

// errNoExec is the error of tryExec if podd cannot be called.
var errNoExec = errors.New("no exec")

// tryExec runs a shell command in the container.
func (c *cell) tryExec(command string) (string, error) {
	r, err := c.Runtime.ExecSync(c.Context(), &cri.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"sh", "-c", command},
		Timeout: 60})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoExec, err)
	}
	if r.ExitCode != 0 {
		return "", fmt.Errorf("%s: exit code = %d, want 0: %s%s", command, r.ExitCode, r.Stdout, r.Stderr)
	}
	return string(r.Stdout), nil
}

func (c *cell) exec(command string) string {
	c.Helper()
	out, err := c.tryExec(command)
	if err != nil {
		c.Fatalf("%v\n%s", err, c.output())
	}
	return out
}

// output returns what the container has printed, by its log.
func (c *cell) output() string {
	c.Helper()
	data, err := os.ReadFile(c.log)
	must(c, err)
	var b strings.Builder
	for l := range bytes.Lines(data) {
		f := strings.SplitN(strings.TrimSuffix(string(l), "\n"), " ", 4)
		if len(f) != 4 {
			continue // it is being written
		}
		b.WriteString(f[3])
		if f[2] == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// eventually waits until f returns no error, five minutes at most: three builds of an image in User-Mode Linux take two
// on a busy machine.
func (c *cell) eventually(what string, f func() error) {
	c.Helper()
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	c.Fatalf("%s: not after five minutes: %v\n%s", what, err, c.output())
}

// get returns the body of a page of the pod.
func (c *cell) get(path string) (string, error) {
	ctx, cancel := context.WithTimeout(c.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.ip+path, nil)
	if err != nil {
		return "", err
	}
	r, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, r.Status)
	}
	return string(body), err
}
