package integration

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/sample"
)

// TestContainers runs with both OCI runtimes, because the spec and the monitor must work with each.
func TestContainers(t *testing.T) {
	t.Parallel()
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			k := startWith(t, daemon.Options{Handler: handler})
			for _, c := range []struct {
				name string
				test func(*kubelet)
			}{
				{"life", containerLife},
				{"how they end", containerEnds},
				{"many end at once", containersEndAtOnce},
				{"stopping", containerStops},
				{"a stop whose caller gives up", containerStopGoesOn},
				{"exec", containerExec},
				{"exec of a background child", containerExecChild},
				{"what the image says", containerImageConfig},
				{"filters", containerFilters},
				{"mounts", containerMounts},
				{"process", containerProcess},
				{"resources", containerResources},
				{"names", containerNames},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
			}
		})
	}
}

func containerLife(k *kubelet) {
	odd := map[string]string{"a": "", "b": "x\ny", "c/d": "ü"}
	pod, podCfg := k.pod()
	cfg := k.containerConfig([]string{"sh", "-c", "echo started; sleep 1000"}, func(c *cri.ContainerConfig) {
		c.Labels, c.Annotations = maps.Clone(odd), maps.Clone(odd)
		c.Metadata.Attempt = 2
	})
	id := k.create(pod, cfg, podCfg)
	st := k.container(id)
	if st.State != cri.ContainerState_CONTAINER_CREATED || st.CreatedAt == 0 || st.StartedAt != 0 || st.FinishedAt != 0 {
		k.Errorf("status after CreateContainer = %v, want CREATED with created_at alone set", st)
	}
	if _, err := os.Stat(filepath.Join(podCfg.LogDirectory, cfg.LogPath)); err != nil {
		k.Errorf("log file after CreateContainer: %v, want it to exist", err)
	}
	k.startContainer(id)
	st = k.container(id)
	if st.State != cri.ContainerState_CONTAINER_RUNNING || st.StartedAt < st.CreatedAt || st.FinishedAt != 0 {
		k.Errorf("status after StartContainer = %v, want RUNNING with started_at >= created_at", st)
	}
	if st.Metadata.String() != cfg.Metadata.String() || !maps.Equal(st.Labels, odd) || !maps.Equal(st.Annotations, odd) {
		k.Errorf("status = %v, want metadata %v, labels and annotations %q", st, cfg.Metadata, odd)
	}
	if want := filepath.Join(podCfg.LogDirectory, cfg.LogPath); st.LogPath != want {
		k.Errorf("log path = %q, want %q", st.LogPath, want)
	}
	image := k.image(busybox)
	listed := k.containers(&cri.ContainerFilter{Id: id})
	if len(listed) != 1 || listed[0].ImageId != image.Id || st.ImageId != image.Id || listed[0].ImageRef != st.ImageRef {
		k.Errorf("image id = %s in the status, list = %v, want id %s and ref %s in both", st.ImageId, listed, image.Id,
			st.ImageRef)
	}
	if listed[0].PodSandboxId != pod || listed[0].CreatedAt != st.CreatedAt || !maps.Equal(listed[0].Labels, odd) {
		k.Errorf("listed = %v, want pod %s, created_at %d and labels %q", listed[0], pod, st.CreatedAt, odd)
	}
	_, err := k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
	k.refused("start a running container", err, "", codes.FailedPrecondition)
	k.stopContainer(id, 0)
	k.stopContainer(id, 0)
	if st = k.container(id); st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != 137 ||
		st.FinishedAt < st.StartedAt {
		k.Errorf("status after StopContainer = %v, want EXITED with exit code 137 and finished_at >= started_at", st)
	}
	k.removeContainer(id)
	k.removeContainer(id)
	k.stopContainer(id, 0)
	_, err = k.Runtime.ContainerStatus(k.ctx(), &cri.ContainerStatusRequest{ContainerId: id})
	k.refused("status of a removed container", err, id[:12], codes.NotFound)
	running, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"})
	k.removeContainer(running) // CRI: a running container is removed forcibly
}

func containerEnds(k *kubelet) {
	pod, podCfg := k.pod()
	for _, c := range []struct {
		name    string
		command []string
		limit   int64
		exit    int32
		reason  string
		message string // a part of it
	}{
		{"well", []string{"true"}, 0, 0, "Completed", ""},
		{"with a status", []string{"sh", "-c", "exit 42"}, 0, 42, "Error", ""},
		{"by its own signal", []string{"sh", "-c", "sh -c 'kill -SEGV $$'; exit $?"}, 0, 139, "Error", ""},
		{"by seccomp's signal", []string{"sh", "-c", "sh -c 'kill -SYS $$'; exit $?"}, 0, 159, "Error", "seccomp"},
		{"for memory", []string{"sh", "-c", "x=x; while true; do x=$x$x$x$x; done"}, 64 << 20, 137, "OOMKilled",
			`killed process "sh": the container reached its memory limit`},
	} {
		id, _ := k.runIn(pod, podCfg, c.command,
			func(cfg *cri.ContainerConfig) { cfg.Linux.Resources.MemoryLimitInBytes = c.limit })
		st := k.exited(id)
		if st.ExitCode != c.exit || st.Reason != c.reason || !strings.Contains(st.Message, c.message) {
			k.Errorf("a container that ends %s: exit code = %d, reason = %q (%s), want %d, %q (%s)", c.name, st.ExitCode,
				st.Reason, st.Message, c.exit, c.reason, c.message)
		}
		if st.StartedAt == 0 || st.FinishedAt < st.StartedAt {
			k.Errorf("a container that ends %s: started_at = %d, finished_at = %d, want 0 < started_at <= finished_at",
				c.name, st.StartedAt, st.FinishedAt)
		}
	}
}

// containersEndAtOnce: containers whose process exits immediately, several at a time, have their exit codes and logs.
func containersEndAtOnce(k *kubelet) {
	pod, podCfg := k.pod()
	var group errgroup.Group
	for code := range int32(9) {
		cfg := k.containerConfig([]string{"sh", "-c", fmt.Sprintf("echo %d; exit %[1]d", code)})
		id := k.create(pod, cfg, podCfg)
		group.Go(func() error {
			_, err := k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
			if err != nil {
				return err
			}
			st := k.exited(id)
			if st.ExitCode != code || st.StartedAt == 0 || st.FinishedAt < st.StartedAt {
				k.Errorf("exit code = %d, started_at = %d, finished_at = %d, want %d, and both in order", st.ExitCode,
					st.StartedAt, st.FinishedAt, code)
			}
			if got := k.logText(podCfg, cfg); got != fmt.Sprintln(code) {
				k.Errorf("log = %q, want %d", got, code)
			}
			return nil
		})
	}
	k.ok("start", group.Wait())
}

func containerStops(k *kubelet) {
	pod, podCfg := k.pod()
	trap := []string{"sh", "-c", "trap 'echo got TERM; exit 3' TERM; echo ready; while true; do sleep 0.05; done"}
	polite, cfg := k.runIn(pod, podCfg, trap)
	k.waitLog(podCfg, cfg, "ready")
	k.stopContainer(polite, 30)
	if st := k.container(polite); st.ExitCode != 3 {
		k.Errorf("exit code = %d, want 3, that of its SIGTERM handler", st.ExitCode)
	}

	deaf, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done"})
	k.waitLog(podCfg, cfg, "ready")
	begin := time.Now()
	k.stopContainer(deaf, 1)
	if st, took := k.container(deaf), time.Since(begin); st.ExitCode != 137 || took < time.Second ||
		took > 10*time.Second {
		k.Errorf("exit code = %d after %v, want 137 after 1s to 10s", st.ExitCode, took)
	}

	k.have("docker.io/podd/stopsignal:latest")
	own, cfg := k.runIn(pod, podCfg, nil,
		func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: "docker.io/podd/stopsignal:latest"} })
	k.waitLog(podCfg, cfg, "ready")
	k.stopContainer(own, 30)
	if st := k.container(own); st.ExitCode != 7 || !strings.Contains(k.logText(podCfg, cfg), "got USR1") {
		k.Errorf("the image's stop signal: exit code = %d, log %q, want 7 and \"got USR1\"", st.ExitCode,
			k.logText(podCfg, cfg))
	}

	// a later stop with a shorter grace overtakes the first
	slow, cfg := k.runIn(pod, podCfg, []string{"sh", "-c", "trap '' TERM; echo ready; while true; do sleep 0.05; done"})
	k.waitLog(podCfg, cfg, "ready")
	first := make(chan error, 1)
	go func() {
		_, err := k.Runtime.StopContainer(k.ctx(), &cri.StopContainerRequest{ContainerId: slow, Timeout: 600})
		first <- err
	}()
	k.stopContainer(slow, 0)
	select {
	case err := <-first:
		k.ok("the first StopContainer", err)
	case <-time.After(20 * time.Second):
		k.Error("StopContainer with a grace period of 600s: no answer after 20s, want one when the container has exited")
	}
}

// waitLog waits until the container has printed text.
func (k *kubelet) waitLog(podCfg *cri.PodSandboxConfig, cfg *cri.ContainerConfig, text string) {
	k.Helper()
	k.eventually("log has "+text, func() bool { return strings.Contains(k.logText(podCfg, cfg), text) })
}

// containerStopGoesOn: the container is killed at the end of the grace period, also if the kubelet is gone by then.
func containerStopGoesOn(k *kubelet) {
	pod, podCfg := k.pod()
	id, cfg := k.runIn(pod, podCfg,
		[]string{"sh", "-c", "trap 'echo TERM' TERM; echo ready; while true; do sleep 0.05; done"})
	k.waitLog(podCfg, cfg, "ready")
	begin := time.Now()
	ctx, cancel := context.WithCancel(k.ctx())
	defer cancel()
	stopped := make(chan error, 1)
	go func() {
		_, err := k.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: 3})
		stopped <- err
	}()
	k.waitLog(podCfg, cfg, "TERM")
	cancel()
	k.refused("a stop that was given up", <-stopped, "", codes.Canceled)
	if st := k.exited(id); st.ExitCode != 137 || time.Since(begin) < 3*time.Second {
		k.Errorf("exit code = %d after %v, want 137 after 3s", st.ExitCode, time.Since(begin))
	}
}

func containerExec(k *kubelet) {
	_, id := k.sleeper()
	run := func(timeout int64, cmd ...string) (*cri.ExecSyncResponse, error) {
		return k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: timeout})
	}
	r, err := run(10, "sh", "-c", "echo out; echo err >&2; exit 5")
	k.ok("ExecSync", err)
	if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.ExitCode != 5 {
		k.Errorf("ExecSync: stdout = %q, stderr = %q, exit code = %d, want \"out\\n\", \"err\\n\", 5", r.Stdout, r.Stderr,
			r.ExitCode)
	}
	r, err = run(10, "sh", "-c", "kill -TERM $$")
	k.ok("ExecSync of a command that kills itself", err)
	if r.ExitCode != 143 {
		k.Errorf("ExecSync of a command that kills itself: exit code = %d, want 143", r.ExitCode)
	}
	r, err = run(30, "sh", "-c", "head -c 3000000 /dev/zero")
	k.ok("ExecSync with 3 MB of output", err)
	if len(r.Stdout) != 3000000 {
		k.Errorf("ExecSync: output has %d bytes, want 3000000", len(r.Stdout))
	}

	begin := time.Now()
	_, err = run(1, "sh", "-c", "sleep 4321 & sleep 4321")
	k.refused("ExecSync past its timeout", err, "", codes.DeadlineExceeded)
	if took := time.Since(begin); took > 10*time.Second {
		k.Errorf("ExecSync with a timeout of 1s took %v, want at most 10s", took)
	}
	// a zombie, which its parent, the container's sleep, never reaps, has no command line
	if left := k.exec(id, "grep -l '432[1]' /proc/[0-9]*/cmdline 2>/dev/null; true"); left != "" {
		k.Errorf("processes after the timeout: %s, want none\n%s", left, k.exec(id, "ps"))
	}

	begin = time.Now()
	r, err = run(60, "sh", "-c", "echo done; sleep 30 >/dev/null 2>&1 &")
	k.ok("ExecSync whose child keeps running", err)
	if took := time.Since(begin); took > 10*time.Second || string(r.Stdout) != "done\n" {
		k.Errorf("ExecSync whose child keeps running took %v, output = %q, want at most 10s, \"done\\n\"", took, r.Stdout)
	}
	_, err = run(10, "no-such-command")
	if err == nil {
		k.Error("ExecSync of a command that does not exist: error = nil, want one")
	}
}

// containerExecChild: a child that holds the output open delays the answer by a second at most, and keeps running.
func containerExecChild(k *kubelet) {
	_, id := k.sleeper()
	begin := time.Now()
	r, err := k.Runtime.ExecSync(k.ctx(), &cri.ExecSyncRequest{ContainerId: id, Timeout: 60,
		Cmd: []string{"sh", "-c", "sleep 8765 & echo now; exit 3"}})
	k.ok("ExecSync whose child holds its output", err)
	if took := time.Since(begin); took > 20*time.Second || string(r.Stdout) != "now\n" || r.ExitCode != 3 {
		k.Errorf("after %v: output = %q, exit code = %d, want \"now\\n\" and 3 at once", took, r.Stdout, r.ExitCode)
	}
	if got := k.exec(id, "grep -l '876[5]' /proc/[0-9]*/cmdline | wc -l"); got != "1\n" {
		k.Errorf("children after the answer = %q, want 1", got)
	}
}

func containerImageConfig(k *kubelet) {
	const image = "docker.io/podd/config:latest"
	k.have(image)
	pod, podCfg := k.pod()
	is := func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: image} }
	for _, c := range []struct {
		name          string
		command, args []string
		want          string
	}{
		{"neither", nil, nil, "entry cmd\n"},
		{"args", nil, []string{"mine"}, "entry mine\n"},
		{"command", []string{"/bin/echo", "own"}, nil, "own\n"},
		{"both", []string{"/bin/echo"}, []string{"all", "mine"}, "all mine\n"},
	} {
		id, cfg := k.runIn(pod, podCfg, c.command, is, func(cfg *cri.ContainerConfig) { cfg.Args = c.args })
		k.exited(id)
		if got := k.logText(podCfg, cfg); got != c.want {
			k.Errorf("command or args given: %s: output = %q, want %q", c.name, got, c.want)
		}
	}
	const dangling = "docker.io/podd/dangling:latest" // its /var/run is a link to /run, which does not exist
	k.have(dangling)
	out, _ := k.outputIn(pod, podCfg, "pwd -P; ls -d /run/db /run/secrets/token", func(c *cri.ContainerConfig) {
		c.Image, c.WorkingDir = &cri.ImageSpec{Image: dangling}, ""
		c.Mounts = []*cri.Mount{{HostPath: "/etc/hosts", ContainerPath: "/var/run/secrets/token", Readonly: true}}
	})
	if want := "/run/app\n/run/db\n/run/secrets/token\n"; out != want {
		k.Errorf("working directory, volume and mount below a dangling link = %q, want %q", out, want)
	}
	out, _ = k.outputIn(pod, podCfg, "echo $GREETING-$EMPTY-$MORE; pwd", is, func(c *cri.ContainerConfig) {
		c.Envs = []*cri.KeyValue{{Key: "GREETING", Value: []byte("bye")}, {Key: "MORE", Value: []byte("a=b c")}}
	})
	if out != "bye--a=b c\n/var/log\n" {
		k.Errorf("environment and working directory = %q, want %q", out, "bye--a=b c\n/var/log\n")
	}
	out, _ = k.outputIn(pod, podCfg, "pwd", is, func(c *cri.ContainerConfig) { c.WorkingDir = "/tmp/new/dir" })
	if out != "/tmp/new/dir\n" {
		k.Errorf("working directory that the image lacks = %q, want %q", out, "/tmp/new/dir\n")
	}
}

func containerFilters(k *kubelet) {
	podA, cfgA := k.pod()
	podB, cfgB := k.pod()
	label := func(v string) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { c.Labels = map[string]string{"l": v, "all": "yes"} }
	}
	a := k.create(podA, k.containerConfig([]string{"sleep", "1000"}, label("a")), cfgA)
	b, _ := k.runIn(podB, cfgB, []string{"sleep", "1000"}, label("b"))
	c, _ := k.runIn(podB, cfgB, []string{"true"}, label("c"))
	k.exited(c)
	state := func(s cri.ContainerState) *cri.ContainerStateValue { return &cri.ContainerStateValue{State: s} }
	for _, f := range []struct {
		name   string
		filter *cri.ContainerFilter
		want   []string
	}{
		{"nothing", nil, []string{a, b, c}},
		{"id", &cri.ContainerFilter{Id: a}, []string{a}},
		{"short id", &cri.ContainerFilter{Id: b[:12]}, []string{b}},
		{"pod", &cri.ContainerFilter{PodSandboxId: podB}, []string{b, c}},
		{"short pod id", &cri.ContainerFilter{PodSandboxId: podA[:12]}, []string{a}},
		{"created", &cri.ContainerFilter{State: state(cri.ContainerState_CONTAINER_CREATED)}, []string{a}},
		{"running", &cri.ContainerFilter{State: state(cri.ContainerState_CONTAINER_RUNNING)}, []string{b}},
		{"exited", &cri.ContainerFilter{State: state(cri.ContainerState_CONTAINER_EXITED)}, []string{c}},
		{"label", &cri.ContainerFilter{LabelSelector: map[string]string{"all": "yes", "l": "b"}}, []string{b}},
		{"id of another pod", &cri.ContainerFilter{Id: a, PodSandboxId: podB}, nil},
	} {
		var got []string
		for _, c := range k.containers(f.filter) {
			got = append(got, c.Id)
		}
		if !sameSet(got, f.want) {
			k.Errorf("ListContainers by %s = %v, want %v", f.name, got, f.want)
		}
	}
}

func containerMounts(k *kubelet) {
	dir := k.Path("volume")
	k.ok("make a volume", os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	k.ok("fill it", os.WriteFile(filepath.Join(dir, "file"), []byte("from the host\n"), 0o644))
	k.ok("write accounts", os.WriteFile(filepath.Join(dir, "passwd"), []byte("me:x:0:0::/home/me:/bin/sh\n"), 0o644))
	k.have("docker.io/podd/data:latest")
	k.have("docker.io/podd/artifact:latest")
	mounts := []*cri.Mount{
		{HostPath: filepath.Join(dir, "passwd"), ContainerPath: "/etc/passwd", Readonly: true},
		{HostPath: dir, ContainerPath: "/rw"},
		{HostPath: dir, ContainerPath: "/ro", Readonly: true, Propagation: cri.MountPropagation_PROPAGATION_PRIVATE},
		{HostPath: filepath.Join(dir, "file"), ContainerPath: "/one/file", Readonly: true},
		{ContainerPath: "/image", Image: &cri.ImageSpec{Image: "docker.io/podd/data:latest"}, Readonly: true},
		{ContainerPath: "/part", Image: &cri.ImageSpec{Image: "docker.io/podd/data:latest"}, ImageSubPath: "data/a",
			Readonly: true},
		{ContainerPath: "/artifact", Image: &cri.ImageSpec{Image: "docker.io/podd/artifact:latest"}, Readonly: true},
	}
	pod, podCfg := k.pod()
	id, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) { c.Mounts = mounts })
	for _, c := range []struct{ command, want string }{
		{"cat /rw/file /ro/file /one/file", "from the host\nfrom the host\nfrom the host\n"},
		{"echo $HOME", "/home/me\n"},
		{"echo new >/rw/new && cat /ro/new", "new\n"},
		{"touch /ro/x 2>&1 | grep -o 'Read-only file system'", "Read-only file system\n"},
		{"cat /image/data/top /part/b/file", "top\ndeep\n"},
		{"cat /artifact/model/weights", "weights\n"},
		{"touch /image/x 2>&1 | grep -o 'Read-only file system'", "Read-only file system\n"},
	} {
		if got := k.exec(id, c.command); got != c.want {
			k.Errorf("%s: output = %q, want %q", c.command, got, c.want)
		}
	}
	got := k.container(id).Mounts
	if len(got) != len(mounts) {
		k.Fatalf("status has %d mounts, want %d: %v", len(got), len(mounts), got)
	}
	for i := range mounts {
		if mounts[i].Image != nil { // podd adds the image's digest
			ref, want := got[i].GetImage().GetImageRef(), strings.TrimSuffix(mounts[i].Image.Image, ":latest")+"@sha256:"
			if !strings.HasPrefix(ref, want) {
				k.Errorf("mount %d: image_ref = %q, want %s...", i, ref, want)
			}
			mounts[i].Image.ImageRef = ref
		}
		if got[i].String() != mounts[i].String() {
			k.Errorf("mount %d = %v, want %v", i, got[i], mounts[i])
		}
	}
}

func containerProcess(k *kubelet) {
	secure := func(f func(*cri.LinuxContainerSecurityContext)) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { f(c.Linux.SecurityContext) }
	}
	pod, podCfg := k.pod()
	status := func(field string) string { return "sed -n 's/^" + field + ":\\t//p' /proc/self/status" }
	for _, c := range []struct {
		name, command, want string
		mod                 func(*cri.ContainerConfig)
	}{
		{"default capabilities", status("CapEff"), "00000000a80425fb\n", nil},
		{"all dropped", status("CapEff"), "0000000000000000\n", secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}}
		})},
		{"one added", status("CapEff"), "0000000000001000\n", secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_ADMIN"}}
		})},
		{"no_new_privs", status("NoNewPrivs"), "1\n",
			secure(func(s *cri.LinuxContainerSecurityContext) { s.NoNewPrivs = true })},
		{"seccomp of the runtime", status("Seccomp"), "2\n", secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}
		})},
		{"seccomp unconfined", status("Seccomp"), "0\n", secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Unconfined}
		})},
		{"user", "id -u; id -g", "1000\n0\n",
			secure(func(s *cri.LinuxContainerSecurityContext) { s.RunAsUser = &cri.Int64Value{Value: 1000} })},
		{"read-only root", "touch /x 2>&1 | grep -o 'Read-only file system'", "Read-only file system\n",
			secure(func(s *cri.LinuxContainerSecurityContext) { s.ReadonlyRootfs = true })},
		{"masked path", "wc -c </etc/group; ls -A /var/log | wc -l", "0\n0\n",
			secure(func(s *cri.LinuxContainerSecurityContext) {
				s.MaskedPaths = []string{"/etc/group", "/var/log", "/no/such/path"}
			})},
		{"read-only path", "echo 1 2>/dev/null >/proc/sys/kernel/domainname || echo refused", "refused\n",
			secure(func(s *cri.LinuxContainerSecurityContext) { s.ReadonlyPaths = []string{"/proc/sys"} })},
		{"masked path of a client that sends none", "wc -c </proc/timer_list; ls -A /sys/firmware | wc -l", "0\n0\n", nil},
		{"read-only path of a client that sends none",
			"echo 1 2>/dev/null >/proc/sys/kernel/domainname || echo refused", "refused\n", nil},
		{"no stdin", "cat; echo end", "end\n", nil},
		{"oom_score_adj", "cat /proc/self/oom_score_adj", "500\n",
			func(c *cri.ContainerConfig) { c.Linux.Resources.OomScoreAdj = 500 }},
		{"device", "ls -l /dev/mine | cut -c1", "c\n", func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/mine", Permissions: "rw"}}
		}},
	} {
		mods := []func(*cri.ContainerConfig){}
		if c.mod != nil {
			mods = append(mods, c.mod)
		}
		if got, _ := k.outputIn(pod, podCfg, c.command, mods...); got != c.want {
			k.Errorf("%s: output = %q, want %q", c.name, got, c.want)
		}
	}
	privileged, cfg := k.pod(func(c *cri.PodSandboxConfig) { c.Linux.SecurityContext.Privileged = true })
	out, code := k.outputIn(privileged, cfg, "mount -t tmpfs x /tmp && echo mounted; "+status("Seccomp"),
		secure(func(s *cri.LinuxContainerSecurityContext) { s.Privileged = true }))
	if out != "mounted\n0\n" || code != 0 {
		k.Errorf("privileged: output = %q, exit code = %d, want %q, 0", out, code, "mounted\n0\n")
	}
}

func containerResources(k *kubelet) {
	pod, podCfg := k.pod()
	id, _ := k.runIn(pod, podCfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 50000, CpuShares: 512,
			MemoryLimitInBytes: 64 << 20}
	})
	r := k.container(id).GetResources().GetLinux()
	if r.GetCpuQuota() != 50000 || r.GetCpuPeriod() != 100000 || r.GetMemoryLimitInBytes() != 64<<20 {
		k.Errorf("resources in the status = %v, want quota 50000, period 100000, memory limit %d", r, 64<<20)
	}
	_, err := k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
		Linux: &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: 25000, MemoryLimitInBytes: 128 << 20}})
	k.ok("UpdateContainerResources", err)
	if got := k.memoryLimit(id); got != fmt.Sprint(128<<20) {
		k.Errorf("the kernel's memory limit after the update = %s, want %d", got, 128<<20)
	}
	r = k.container(id).GetResources().GetLinux()
	if r.GetCpuQuota() != 25000 || r.GetMemoryLimitInBytes() != 128<<20 {
		k.Errorf("resources in the status after the update = %v, want quota 25000, memory limit %d", r, 128<<20)
	}
	id, _ = k.runIn(pod, podCfg, []string{"sleep", "1000"}, func(c *cri.ContainerConfig) {
		c.Linux.Resources = &cri.LinuxContainerResources{CpuPeriod: 100000, CpuQuota: -1}
	})
	if r = k.container(id).GetResources().GetLinux(); r.GetCpuQuota() > 0 {
		k.Errorf("resources in the status without a quota = %v, want none", r)
	}
}

// memoryLimit reads the container's limit from its cgroup, v1 or v2.
func (k *kubelet) memoryLimit(id string) string {
	k.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup/memory/*%s*/memory.limit_in_bytes",
		"/sys/fs/cgroup/*%s*/memory.max"} {
		base := strings.TrimPrefix(k.CgroupParent, "/")
		found, err := filepath.Glob(fmt.Sprintf(strings.Replace(pattern, "*%s*", base+"/*%s*", 1), id))
		if err == nil && len(found) == 1 {
			data, err := os.ReadFile(found[0])
			k.ok("read the limit", err)
			return strings.TrimSpace(string(data))
		}
	}
	k.Fatalf("no cgroup of container %s below %s, want one with a memory limit", id, k.CgroupParent)
	return ""
}

func containerNames(k *kubelet) {
	pod, podCfg := k.pod()
	cfg := k.containerConfig([]string{"sleep", "1000"})
	id := k.create(pod, cfg, podCfg)
	if again := k.create(pod, cfg, podCfg); again != id {
		k.Errorf("CreateContainer with the same request = %s, want %s", again, id)
	}
	other := k.containerConfig([]string{"sleep", "2000"})
	other.Metadata = cfg.Metadata
	_, err := k.tryCreate(pod, other, podCfg)
	k.refused("the name of a container with another configuration", err, "", codes.AlreadyExists)
	k.removeContainer(id)
	if again := k.create(pod, other, podCfg); again == id {
		k.Errorf("CreateContainer after removal = %s, want a new id", again)
	}
}
