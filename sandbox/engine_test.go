package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/ocitest"
	"github.com/podd-project/podd/oci/spec"
	"github.com/podd-project/podd/oci/spec/host"
	"github.com/podd-project/podd/sandbox/handler"
	"github.com/podd-project/podd/sandbox/lifecycle"
	"github.com/podd-project/podd/sandbox/record"
)

// newEngine starts an engine on m, as a daemon would, and recovers what an earlier one left there.
func newEngine(t *testing.T, m *machine) (*Engine, *faults) {
	t.Helper()
	return newEngineAt(t, m, "boot-1")
}

func newEngineAt(t *testing.T, m *machine, bootID string) (*Engine, *faults) {
	t.Helper()
	e, h := makeEngine(t, m, bootID)
	must(t, e.Recover(t.Context()))
	must(t, e.WaitRecovered(t.Context()))
	must(t, e.GC(t.Context()))
	h.arm(0, false, false)
	return e, h
}

// makeEngine makes an engine that has not recovered yet.
func makeEngine(t testing.TB, m *machine, bootID string) (*Engine, *faults) {
	t.Helper()
	h := newFaults()
	cfg := DefaultConfig()
	node := Node{BootID: bootID, PauseRootfs: "/pause", Layout: record.Layout{
		Root: filepath.Join(m.dir, "root"), Run: filepath.Join(m.dir, "run"), NetnsDir: m.netnsDir,
	}}
	log := discardLog()
	cdi, err := host.NewCDI(nil)
	must(t, err)
	deps := m.deps(h)
	deps.Facts, deps.CDI, deps.Log = spec.Facts{Capabilities: []string{"CAP_CHOWN"}}, cdi, log
	e, err := New(node, cfg, deps)
	must(t, err)
	t.Cleanup(func() {
		h.kill()
		e.life.End(errClosing)
	})
	return e, h
}

// podConfig is a pod whose containers share a PID namespace, the shape with most parts.
func podConfig(name string) *cri.PodSandboxConfig {
	return &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname: name,
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_POD},
		}},
	}
}

// containerConfig is a container that exits with 143 when it gets SIGTERM.
func containerConfig(name string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: "busybox"},
		Command: ocitest.Trap(143),
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_POD},
		}},
	}
}

func mustRunPod(t testing.TB, e *Engine, name string) string {
	t.Helper()
	id, err := e.RunPod(t.Context(), podConfig(name), "")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustCreate(t testing.TB, e *Engine, pod, name string) string {
	t.Helper()
	id, err := e.CreateContainer(t.Context(), pod, containerConfig(name))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustStart(t testing.TB, e *Engine, id string) {
	t.Helper()
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func noLeaks(t *testing.T, m *machine) {
	t.Helper()
	if left := m.leaks(); len(left) > 0 {
		t.Fatalf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

func container(t *testing.T, e *Engine, id string) record.ContainerStatus {
	t.Helper()
	c, err := e.Container(id)
	must(t, err)
	return c.Status()
}

func waitExited(t *testing.T, e *Engine, id string) record.ContainerStatus {
	t.Helper()
	c, err := e.Container(id)
	must(t, err)
	select {
	case <-c.exited:
	case <-time.After(10 * time.Second):
		t.Fatalf("container %s is %s still", id, c.Status().State)
	}
	return c.Status()
}

// podTest is a pod with one container on its way through TestPodLife.
type podTest struct {
	m       *machine
	e       *Engine
	h       *faults
	pod, id string
}

// TestPodLife is one life in the order of a kubelet: each subtest goes on where the one before it ended.
func TestPodLife(t *testing.T) {
	l := &podTest{m: newMachine(t)}
	l.e, l.h = newEngine(t, l.m)
	for _, step := range []struct {
		name string
		test func(t *testing.T, l *podTest)
	}{
		{"RunPod", lifeRunPod},
		{"CreateContainer", lifeCreateContainer},
		{"StartContainer", lifeStartContainer},
		{"Exec", lifeExec},
		{"Attach", lifeAttach},
		{"UpdateContainer", lifeUpdateContainer},
		{"StopContainer", lifeStopContainer},
		{"RemovePod", lifeRemovePod},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.test(t, l) }) {
			return
		}
	}
}

func lifeRunPod(t *testing.T, l *podTest) {
	l.pod = mustRunPod(t, l.e, "web")
	p, err := l.e.Pod(l.pod[:8])
	must(t, err)
	if s := p.Status(); s.State != record.PodReady || s.Infra.Pid == 0 {
		t.Errorf("status = %+v, want ready with an infra container", s)
	}
	leases, err := l.m.network.Leases()
	must(t, err)
	if got, want := p.Status().IPs, leases[l.pod]; len(want) != 2 || !slices.Equal(got, want) {
		t.Errorf("IPs = %v, want the addresses of both families that the network gave: %v", got, want)
	}
	want := []string{"pin", "setup", "sysctl", "mount etc", "mount shm", "create", "start", "plugins run pod"}
	if got := l.h.callNames(); !slices.Equal(got, want) {
		t.Errorf("calls = %v, want %v", got, want)
	}
}

func lifeCreateContainer(t *testing.T, l *podTest) {
	l.id = mustCreate(t, l.e, l.pod, "main")
	if s := container(t, l.e, l.id); s.State != record.ContainerCreated || s.Process.Pid == 0 || s.User == nil {
		t.Errorf("status = %+v, want created with a process and a user", s)
	}
	if got, want := l.e.InUse(fakeImageID), []string{l.id}; !slices.Equal(got, want) {
		t.Errorf("InUse = %v, want %v", got, want)
	}
}

func lifeStartContainer(t *testing.T, l *podTest) {
	mustStart(t, l.e, l.id)
	if s := container(t, l.e, l.id); s.State != record.ContainerRunning || s.StartedAt.IsZero() {
		t.Errorf("status = %+v, want running with a start time", s)
	}
}

func lifeExec(t *testing.T, l *podTest) {
	result, err := l.e.ExecSync(t.Context(), l.id, []string{"echo", "hi"}, time.Second)
	must(t, err)
	if got, want := string(result.Stdout), "hi\n"; got != want {
		t.Errorf("ExecSync wrote %q, want %q", got, want)
	}
	var out strings.Builder
	_, err = l.e.Exec(t.Context(), l.id, []string{"echo", "streamed"}, true, oci.Streams{Stdout: &out})
	must(t, err)
	if got, want := out.String(), "streamed\n"; got != want {
		t.Errorf("Exec wrote %q, want %q", got, want)
	}
	code, err := l.e.Exec(t.Context(), l.id, []string{"sh", "-c", "exit 3"}, false, oci.Streams{})
	if code != 3 || err != nil {
		t.Errorf("Exec = %d, %v, want 3, nil", code, err)
	}
	var terminals []bool
	for _, r := range l.m.runtimes["runc"].Execs() {
		terminals = append(terminals, r.Process.Terminal)
	}
	if want := []bool{false, true, false}; !slices.Equal(terminals, want) {
		t.Errorf("terminals of the commands = %v, want %v", terminals, want)
	}
}

// lifeAttach attaches to a second container: one that copies its input and ends with it.
func lifeAttach(t *testing.T, l *podTest) {
	config := containerConfig("cat")
	config.Command, config.Stdin, config.StdinOnce = []string{"cat"}, true, true
	id, err := l.e.CreateContainer(t.Context(), l.pod, config)
	must(t, err)
	mustStart(t, l.e, id)
	var out strings.Builder
	must(t, l.e.Attach(t.Context(), id, oci.Streams{Stdin: strings.NewReader("attached"), Stdout: &out}))
	if got, want := out.String(), "attached"; got != want {
		t.Errorf("Attach wrote %q, want %q", got, want)
	}
	if s := waitExited(t, l.e, id); s.ExitCode != 0 || s.Reason != reasonCompleted {
		t.Errorf("status = %+v, want exited with 0, %s", s, reasonCompleted)
	}
	must(t, l.e.RemoveContainer(t.Context(), id))
}

func lifeUpdateContainer(t *testing.T, l *podTest) {
	must(t, l.e.ReopenLog(t.Context(), l.id))
	must(t, l.e.UpdateContainer(t.Context(), l.id, &cri.LinuxContainerResources{CpuShares: 512}))
	if got := container(t, l.e, l.id).Resources.GetCpuShares(); got != 512 {
		t.Errorf("CpuShares = %d, want 512", got)
	}
	_, r, _ := l.m.runtimes["runc"].Request(l.id)
	if r == nil || r.CPU == nil || r.CPU.Shares == nil || *r.CPU.Shares != 512 {
		t.Errorf("the runtime got the resources %+v, want 512 CPU shares", r)
	}
	for _, verb := range []string{"reopen", "update"} {
		if n := l.h.count(verb); n != 1 {
			t.Errorf("%d calls of %s, want 1", n, verb)
		}
	}
}

func lifeStopContainer(t *testing.T, l *podTest) {
	for range 2 {
		must(t, l.e.StopContainer(t.Context(), l.id, 10*time.Second))
	}
	if s := container(t, l.e, l.id); s.State != record.ContainerExited || s.ExitCode != 143 || s.Reason != reasonError {
		t.Errorf("status = %+v, want exited with 143, %s", s, reasonError)
	}
	must(t, l.e.RemoveContainer(t.Context(), l.id))
}

func lifeRemovePod(t *testing.T, l *podTest) {
	p, err := l.e.Pod(l.pod)
	must(t, err)
	for range 2 {
		must(t, l.e.StopPod(t.Context(), l.pod))
	}
	if got := p.Status().State; got != record.PodNotReady {
		t.Errorf("state of the stopped pod = %s, want %s", got, record.PodNotReady)
	}
	must(t, l.e.RemovePod(t.Context(), l.pod))
	noLeaks(t, l.m)
}

func TestAbsentIDs(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	ctx := t.Context()
	for name, err := range map[string]error{
		"StopPod": e.StopPod(ctx, "nope"), "RemovePod": e.RemovePod(ctx, "nope"),
		"StartContainer": e.StartContainer(ctx, "nope"), "StopContainer": e.StopContainer(ctx, "nope", 0),
		"RemoveContainer": e.RemoveContainer(ctx, "nope"), "ReopenLog": e.ReopenLog(ctx, "nope"),
		"UpdateContainer": e.UpdateContainer(ctx, "nope", nil),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s: got %v, want not found", name, err)
		}
	}
	if _, err := e.CreateContainer(ctx, "nope", containerConfig("a")); !errdefs.IsNotFound(err) {
		t.Errorf("CreateContainer = %v, want not found", err)
	}
	if _, err := e.Exec(ctx, "nope", []string{"a"}, false, oci.Streams{}); !errdefs.IsNotFound(err) {
		t.Errorf("Exec = %v, want not found", err)
	}
	if err := e.Attach(ctx, "nope", oci.Streams{}); !errdefs.IsNotFound(err) {
		t.Errorf("Attach = %v, want not found", err)
	}
	if _, err := e.ExecSync(ctx, "nope", []string{"a"}, 0); !errdefs.IsNotFound(err) {
		t.Errorf("ExecSync = %v, want not found", err)
	}
}

func TestAmbiguousPrefix(t *testing.T) {
	e, _ := newEngine(t, newMachine(t))
	for i := range 20 { // of 20 random ids two share their first character
		mustRunPod(t, e, fmt.Sprint("pod", i))
	}
	ambiguous := 0
	for _, c := range "0123456789abcdef" {
		if _, err := e.Pod(string(c)); errdefs.IsInvalidArgument(err) {
			ambiguous++
		}
	}
	if ambiguous == 0 {
		t.Fatal("no prefix was found to be ambiguous")
	}
	if _, err := e.Pod(""); !errdefs.IsInvalidArgument(err) {
		t.Fatalf("empty id: %v", err)
	}
}

func TestUnknownHandlerListsTheKnown(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	_, err := e.RunPod(t.Context(), podConfig("web"), "unknown")
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "runc") ||
		!strings.Contains(err.Error(), "other") {
		t.Fatalf("RunPod = %v, want an invalid argument and the known handlers", err)
	}
	noLeaks(t, m)
}

func TestHandlerThatIsNotReady(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	broken := m.runtime(h, "vm")
	broken.Unready = errors.New("no such binary")
	e.handlers.Current().Runtimes["broken"] = broken
	_, err := e.RunPod(t.Context(), podConfig("web"), "broken")
	if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no such binary") {
		t.Fatalf("RunPod = %v, want unavailable and the cause", err)
	}
	noLeaks(t, m)
	if hs := e.Handlers(); len(hs) != 4 || hs[0].Name != "runc" || !hs[0].Default || hs[1].Name != "broken" ||
		hs[1].Err == nil {
		t.Fatalf("Handlers = %+v, want 4: runc, the default, first, then broken with its error", hs)
	}
}

func TestHandlersHaveTheirOwnCNIConfiguration(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	e.cfg.Load().Handlers = map[string]handler.Config{"other": {CNIConfDir: "/etc/other/net.d"}}
	for handler, want := range map[string]string{"": "", "runc": "", "other": "/etc/other/net.d"} {
		if _, err := e.RunPod(t.Context(), podConfig("on-"+handler), handler); err != nil {
			t.Fatal(err)
		}
		requests := m.network.Requests()
		if got := requests[len(requests)-1].ConfDir; got != want {
			t.Errorf("handler %q: CNI configuration directory %q, want %q", handler, got, want)
		}
	}
}

func TestHostNetworkPodWithoutSharedPID(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	config := podConfig("host")
	config.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{
		Network: cri.NamespaceMode_NODE, Ipc: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
	}
	id, err := e.RunPod(t.Context(), config, "")
	must(t, err)
	if got := h.callNames(); !slices.Equal(got, []string{"pin", "mount etc", "plugins run pod"}) {
		t.Fatalf("calls %v: a host network pod needs no network, no shm and no process", got)
	}
	must(t, e.RemovePod(t.Context(), id))
	noLeaks(t, m)
}

func TestCreateContainerNeedsAReadyPodAndAnImage(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	config := containerConfig("main")
	config.Image.Image = "absent"
	if _, err := e.CreateContainer(t.Context(), pod, config); !errdefs.IsNotFound(err) {
		t.Fatalf("absent image: %v", err)
	}
	must(t, e.StopPod(t.Context(), pod))
	if _, err := e.CreateContainer(t.Context(), pod, containerConfig("main")); !errdefs.IsFailedPrecondition(err) {
		t.Fatalf("stopped pod: %v", err)
	}
	must(t, e.RemovePod(t.Context(), pod))
	noLeaks(t, m)
}

func TestTargetPIDNamespaceStaysInThePod(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	mine, other := mustRunPod(t, e, "mine"), mustRunPod(t, e, "other")
	target, foreign := mustCreate(t, e, mine, "main"), mustCreate(t, e, other, "main")
	debug := func(id string) error {
		c := containerConfig("debug")
		c.Linux.SecurityContext.NamespaceOptions = &cri.NamespaceOption{Pid: cri.NamespaceMode_TARGET, TargetId: id}
		_, err := e.CreateContainer(t.Context(), mine, c)
		return err
	}
	if err := debug(foreign); !errdefs.IsInvalidArgument(err) {
		t.Errorf("container of another pod: %v", err)
	}
	if err := debug(target); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("container that does not run: %v", err)
	}
	if err := debug("absent"); !errdefs.IsNotFound(err) {
		t.Errorf("absent container: %v", err)
	}
	mustStart(t, e, target)
	must(t, debug(target))
}

func TestExitReasons(t *testing.T) {
	cases := map[string]struct {
		exit oci.Exit
		code int32
		want string
	}{
		"success": {oci.Exit{Known: true}, 0, "Completed"},
		"failure": {oci.Exit{Code: 3, Known: true}, 3, "Error"},
		"oom":     {oci.Exit{Code: 137, OOM: true, Known: true}, 137, "OOMKilled"},
		"unknown": {oci.Exit{Code: 255}, 255, "Unknown"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			e, _ := newEngine(t, m)
			id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
			mustStart(t, e, id)
			m.exit(id, c.exit)
			if s := waitExited(t, e, id); s.ExitCode != c.code || s.Reason != c.want {
				t.Fatalf("exit = %d, %s, want %d, %s", s.ExitCode, s.Reason, c.code, c.want)
			}
		})
	}
}

// mustCreateUnrunnable creates a container whose command, "nope", cannot be run.
func mustCreateUnrunnable(t *testing.T, e *Engine, pod string) string {
	t.Helper()
	config := containerConfig("main")
	config.Command = []string{"nope"}
	id, err := e.CreateContainer(t.Context(), pod, config)
	must(t, err)
	return id
}

func TestCommandThatCannotRunIsAStartError(t *testing.T) {
	for _, stopFirst := range []bool{false, true} {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		id := mustCreateUnrunnable(t, e, pod)
		if stopFirst {
			must(t, e.StopContainer(t.Context(), id, 0))
		} else if err := e.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "nope") {
			t.Fatalf("StartContainer = %v, want an error that names the command", err)
		}
		if s := waitExited(t, e, id); s.ExitCode != 128 || s.Reason != "StartError" || !strings.Contains(s.Message, "nope") {
			t.Fatalf("status = %+v, want 128, %s, a message that names the command", s, reasonStartError)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
	}
}

func TestInfraDeathMakesPodNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		pod := mustRunPod(t, e, "web")
		m.exit(pod, oci.Exit{Known: true})
		p, err := e.Pod(pod)
		must(t, err)
		synctest.Wait()
		if got := p.Status().State; got != record.PodNotReady {
			t.Fatalf("state of the pod = %s, want %s", got, record.PodNotReady)
		}
		must(t, e.RemovePod(t.Context(), pod))
		noLeaks(t, m)
	})
}

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		e, _ := newEngine(t, m)
		events := make(chan Event, 100)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Events(ctx, func(ev Event) error { events <- ev; return nil }) }()
		synctest.Wait()
		pod := mustRunPod(t, e, "web")
		id := mustCreate(t, e, pod, "main")
		mustStart(t, e, id)
		must(t, e.StopContainer(t.Context(), id, 0))
		must(t, e.RemovePod(t.Context(), pod))
		want := []Event{
			{Type: lifecycle.Created, ID: pod}, {Type: lifecycle.Started, ID: pod}, {Type: lifecycle.Created, ID: id},
			{Type: lifecycle.Started, ID: id}, {Type: lifecycle.Stopped, ID: id}, {Type: lifecycle.Stopped, ID: pod},
			{Type: lifecycle.Deleted, ID: id}, {Type: lifecycle.Deleted, ID: pod},
		}
		for i, w := range want {
			if got := <-events; got.Type != w.Type || got.ID != w.ID || got.Pod.ID != pod || got.At.IsZero() {
				t.Fatalf("event %d = %+v, want type %v of %s in pod %s", i, got, w.Type, w.ID, pod)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("Events = %v, want %v", err, context.Canceled)
		}
		if n := e.events.Subscribers(); n != 0 {
			t.Fatalf("%d subscribers after the end, want 0", n)
		}
	})
}

func TestCreatedComesBeforeStarted(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	var listed []bool
	events, _ := e.events.Subscribe()
	pod := mustRunPod(t, e, "web")
	for range 2 {
		event := <-events
		listed = append(listed, slices.Contains(e.Pods(), event.Pod))
	}
	id := mustCreate(t, e, pod, "main")
	// The caller has its answer: what there is to tell has been told.
	select {
	case event := <-events:
		listed = append(listed, event.ID == id && len(e.Containers()) == 1)
	default:
		t.Fatal("CreateContainer returned before its event")
	}
	if !slices.Equal(listed, []bool{true, true, true}) {
		t.Fatalf("listed when told of: %v", listed)
	}
}

func TestEventsOfShortLivedContainersComeInOrder(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	events, _ := e.events.Subscribe()
	for i := range 50 {
		config := containerConfig("main")
		config.Metadata.Attempt = uint32(i)
		id, err := e.CreateContainer(t.Context(), pod, config)
		must(t, err)
		mustStart(t, e, id)
		m.exit(id, oci.Exit{Known: true})
		must(t, e.RemoveContainer(t.Context(), id))
		for want := lifecycle.Created; want <= lifecycle.Deleted; want++ {
			if got := <-events; got.Type != want || got.ID != id {
				t.Fatalf("container %d: got event %d, want %d", i, got.Type, want)
			}
		}
	}
}

func TestConcurrentRemovalsDeleteOnce(t *testing.T) {
	m := newMachine(t)
	e, h := newEngine(t, m)
	pod := mustRunPod(t, e, "web")
	id := mustCreate(t, e, pod, "main")
	events, _ := e.events.Subscribe()
	release, releaseNetwork := h.hold("release"), h.hold("teardown")
	var removals sync.WaitGroup
	for range 3 {
		removals.Go(func() {
			if err := e.RemoveContainer(t.Context(), id); err != nil && !errdefs.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	h.await("release")
	for range 3 {
		removals.Go(func() {
			if err := e.RemovePod(t.Context(), pod); err != nil && !errdefs.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	h.await("teardown")
	release()
	releaseNetwork()
	removals.Wait()
	deleted := map[string]int{}
	for len(events) > 0 {
		if got := <-events; got.Type == lifecycle.Deleted {
			deleted[got.ID]++
		}
	}
	if want := map[string]int{id: 1, pod: 1}; !maps.Equal(deleted, want) {
		t.Fatalf("deletions %v, want %v", deleted, want)
	}
	noLeaks(t, m)
}

func TestCloseLeavesPodsRunning(t *testing.T) {
	m := newMachine(t)
	e, _ := newEngine(t, m)
	id := mustCreate(t, e, mustRunPod(t, e, "web"), "main")
	mustStart(t, e, id)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	must(t, e.Close(ctx))
	if n := m.pidsAlive(); n != 2 {
		t.Fatalf("%d processes alive after close, want the container and its infra container", n)
	}
}
