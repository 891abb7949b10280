package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/fuse"
	model "github.com/podd-project/podd/test/simulate/kubelet"
)

// TestTorture (make torture) plays the kubelet of test/simulate against a real podd, with faults that can be done for
// real: podd, its helpers and containers are killed at any moment, helpers are stopped, the disk is full, files of pods
// are deleted. Answers must be consistent all the time. Once faults have ended, all that is wanted runs.
// When nothing is wanted, nothing is left.
func TestTorture(t *testing.T) {
	if os.Getenv("TORTURE") == "" {
		t.Skip("takes long; make torture LENGTH=20m")
	}
	length, err := time.ParseDuration(os.Getenv("TORTURE"))
	if err != nil {
		t.Fatalf("TORTURE: %v", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SEED"), strconv.FormatInt(time.Now().Unix(), 10)), 10, 64)
	if err != nil {
		t.Fatalf("SEED: %v", err)
	}
	w := newTorture(t, seed)
	ctx, end := context.WithCancel(w.ctx())
	var all, faults sync.WaitGroup
	k := model.New(w, model.Config{Timeout: 20 * time.Second, Pods: 8, Change: 8 * time.Second, Wish: w.wish})
	all.Go(func() { k.Run(ctx) })
	all.Go(func() { w.watch(ctx) })
	wishing, enough := context.WithTimeout(ctx, length)
	faults.Go(func() { k.Change(wishing) })
	faults.Go(func() { w.harm(wishing) })
	faults.Wait()
	enough()
	w.mend()
	w.within(6*time.Minute, "all that is wanted runs", k.Missing)
	k.WantNothing()
	w.within(15*time.Minute, "nothing is left", w.left) // a pod that no caller has heard of is kept for ten minutes
	w.Pause(ctx, "", 2*eventTime)
	end()
	all.Wait()
	t.Logf("seed %d: %v", seed, w.counts)
}

// torture is the world of the kubelet.
type torture struct {
	*kubelet
	seed  uint64
	out   *os.File
	empty []string // files without pods

	mu      sync.Mutex
	calm    bool // faults have ended
	full    bool // the disk is full
	rolls   map[string]uint64
	counts  map[string]int // of faults and calls
	life    *process
	objects map[string]*object
}

// object is what callers know of a pod or container.
type object struct {
	key              string // name and attempt of a pod
	pod              string // of a container
	known, stopped   bool
	removing         bool
	rank             int32
	ranked           *process // which podd has said so
	exited, diskFull bool
	code             int32
	spoilt           time.Time
}

func newTorture(t *testing.T, seed uint64) *torture {
	k := startWith(t, daemon.Options{Set: []string{`image.pull_grace="1s"`}})
	k.newDisk("")
	k.have(busybox)
	repo, err := daemon.Repository()
	k.ok("repository", err)
	out, err := os.Create(filepath.Join(repo, "bin", "torture.log"))
	k.ok("make the log", err)
	w := &torture{kubelet: k, seed: seed, out: out, rolls: map[string]uint64{}, counts: map[string]int{},
		objects: map[string]*object{}}
	t.Cleanup(func() {
		out.Close()
		w.ok("keep podd's log", shell("cp "+w.LogFile()+" "+filepath.Join(repo, "bin", "torture-podd.log")))
	})
	w.empty = w.files()
	w.serve()
	return w
}

// wish returns the i-th pod.
func (w *torture) wish(i int) *model.Wish {
	r := w.Roll(fmt.Sprint("wish ", i))
	p := model.NewWish(r, i)
	handlers := []string{"", "", "", "", "crun", "crun", "gvisor", "gvisor-shim", "vm"}
	p.Handler = handlers[r.IntN(len(handlers))]
	p.Config.LogDirectory = w.Path("logs", p.Config.Metadata.Name)
	if err := os.MkdirAll(p.Config.LogDirectory, 0o755); err != nil {
		w.Error(err)
	}
	p.Config.Linux.CgroupParent = w.CgroupParent
	isolated := strings.HasPrefix(p.Handler, "gvisor") || p.Handler == "vm"
	options := p.Config.Linux.SecurityContext.NamespaceOptions
	if isolated {
		options.Network = cri.NamespaceMode_POD // they refuse the node's
	}
	for _, c := range p.Containers {
		if !isolated {
			w.spice(r, c)
		}
		c.Labels = map[string]string{"command": strings.Join(c.Command, " ")}
		c.Image = &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox}
		c.LogPath = c.Metadata.Name + ".log"
		c.Linux.SecurityContext.NamespaceOptions = options
	}
	return p
}

// spice makes a container that is killed for memory, or one that reads from a volume whose server hangs, at times.
func (w *torture) spice(r *rand.Rand, c *cri.ContainerConfig) {
	switch r.IntN(8) {
	case 0:
		c.Command = []string{"tail", "/dev/zero"}
		c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 16 << 20}
	case 1:
		dir := w.snapshotDir()
		volume := fuse.Mount(w.TB, dir)
		c.Mounts = []*cri.Mount{{HostPath: dir, ContainerPath: "/data"}}
		c.Command = []string{"cat", "/data/file"}
		time.AfterFunc(time.Duration(r.IntN(20))*time.Second, volume.Die)
		time.AfterFunc(time.Duration(20+r.IntN(40))*time.Second, volume.Disconnect)
	}
}

// --- the world of the kubelet

func (w *torture) Roll(key string) *rand.Rand {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rolls[key]++
	return model.Roll(w.seed, key, w.rolls[key])
}

func (w *torture) Pause(ctx context.Context, _ string, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (w *torture) Log(format string, args ...any) {
	fmt.Fprintf(w.out, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

func (w *torture) IsFaulty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm
}

func (w *torture) May(string) bool { return w.IsFaulty() }

func (w *torture) Runtime() model.Runtime {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life == nil {
		return nil
	}
	return w.life
}

func (w *torture) Told(what model.What, answer model.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objectLocked(answer.ID)
	switch what {
	case model.Known:
		if o.known = true; answer.Name == "" {
			return
		}
		if o.key = fmt.Sprintf("%s.%d", answer.Name, answer.Attempt); o.stopped {
			w.violated("a stopped pod sandbox is not ready again: %s is returned as %s", answer.ID, o.key)
		}
	case model.Stopped:
		o.stopped = true
	case model.Stopping, model.Removing:
		o.removing = o.removing || what == model.Removing
	case model.Removed:
		o.stopped = true
	}
}

func (w *torture) objectLocked(id string) *object {
	if w.objects[id] == nil {
		w.objects[id] = &object{diskFull: w.full}
	}
	return w.objects[id]
}

func (w *torture) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.Log("VIOLATION %s", text)
	w.Errorf("%s: %s", time.Now().Format("15:04:05.000"), text)
}

func (w *torture) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// --- podd

// process is one process of podd.
type process struct {
	w     *torture
	ctx   context.Context
	kill  context.CancelFunc
	began time.Time
	// events are those that a subscriber got, wanted those that follow from lists, with the time of the list.
	events, wanted map[event]time.Time
}

type event struct {
	id string
	of cri.ContainerEventType
}

// serve notes that podd has been started.
func (w *torture) serve() {
	l := &process{w: w, began: time.Now(), events: map[event]time.Time{}, wanted: map[event]time.Time{}}
	l.ctx, l.kill = context.WithCancel(w.ctx())
	w.Log("podd serves")
	w.mu.Lock()
	w.life = l
	w.mu.Unlock()
	go l.watchEvents()
}

// down notes that podd does not serve.
func (w *torture) down() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life != nil {
		w.life.kill()
		w.life = nil
	}
}

func (l *process) Call(timeout time.Duration, what string, f func(context.Context, model.Client) error) error {
	ctx, cancel := context.WithTimeout(l.ctx, timeout)
	defer cancel()
	l.w.Log("request: %s", what)
	err := f(ctx, l.w.kubelet.Runtime)
	l.w.Log("answer: %s: %v", what, err)
	verb, _, _ := strings.Cut(what, " ")
	l.w.count(verb)
	s, ok := status.FromError(err)
	switch code := s.Code(); {
	case l.ctx.Err() != nil:
	case !ok, code == codes.InvalidArgument, code == codes.Unimplemented, strings.Contains(s.Message(), "panicked"),
		code == codes.NotFound && (strings.HasPrefix(verb, "Stop") || strings.HasPrefix(verb, "Remove")):
		l.w.violated("%s, a valid call: %v", what, err)
	}
	return err
}

// How long a list may take, and an event after the list that shows its change: no time, but the machine is busy.
const listTime, eventTime = 15 * time.Second, 5 * time.Second

func (l *process) List(f func(context.Context, model.Client) error) error {
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	began := time.Now()
	err := f(ctx, l.w.kubelet.Runtime)
	if took := time.Since(began); l.ctx.Err() == nil && took > listTime {
		l.w.violated("lists are answered at once, not after %v: %v", took, err)
	}
	return err
}

// watchEvents compares each event with those before it.
func (l *process) watchEvents() {
	stream, err := l.w.kubelet.Runtime.GetContainerEvents(l.ctx, &cri.GetEventsRequest{})
	last := map[string]cri.ContainerEventType{}
	for err == nil {
		var e *cri.ContainerEventResponse
		if e, err = stream.Recv(); err != nil {
			break
		}
		id, t := e.GetContainerId(), e.GetContainerEventType()
		if before, seen := last[id]; seen && before >= t {
			l.w.violated("events come in order, not %v of %s after %v", t, id, before)
		}
		last[id] = t
		l.w.count("events")
		l.w.mu.Lock()
		l.events[event{id, t}] = time.Now()
		l.w.mu.Unlock()
	}
	if l.ctx.Err() == nil && status.Code(err) != codes.Unavailable {
		l.w.violated("a subscriber that keeps up is served, not: %v", err)
	}
}

// --- invariants

// watch compares lists with what callers were told, until ctx ends.
func (w *torture) watch(ctx context.Context) {
	for w.Pause(ctx, "", 500*time.Millisecond) {
		w.mu.Lock()
		l, told := w.life, map[string]object{}
		for id, o := range w.objects {
			told[id] = *o
		}
		w.mu.Unlock()
		if l == nil {
			continue
		}
		var pods []*cri.PodSandbox
		var containers []*cri.Container
		if l.List(func(ctx context.Context, c model.Client) error {
			p, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			pods = p.GetItems()
			return err
		}) != nil || l.List(func(ctx context.Context, c model.Client) error {
			r, err := c.ListContainers(ctx, &cri.ListContainersRequest{})
			containers = r.GetContainers()
			return err
		}) != nil {
			continue
		}
		w.checkPods(l, pods, told)
		for _, c := range containers {
			w.checkContainer(l, c)
		}
		w.checkStopped(told)
		w.checkEvents(l)
	}
}

// checkPods compares the list of pods with told, which is older.
func (w *torture) checkPods(l *process, pods []*cri.PodSandbox, told map[string]object) {
	keys, addresses, listed := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, p := range pods {
		listed[p.Id] = true
		w.rank(l, p.Id, int32(p.State))
		if p.State != cri.PodSandboxState_SANDBOX_READY {
			continue
		}
		if at := told[p.Id].spoilt; !at.IsZero() && min(time.Since(at), time.Since(l.began)) > time.Minute {
			w.violated("a pod that has lost a file is not ready a minute later: %s is", p.Id)
		}
		if told[p.Id].stopped {
			w.violated("a stopped pod sandbox is not ready again: %s is", p.Id)
		}
		key := fmt.Sprintf("%s.%d", p.Metadata.Name, p.Metadata.Attempt)
		if other := keys[key]; other != "" {
			w.violated("at most one ready pod sandbox of a name and attempt, not %s and %s of %s", other, p.Id, key)
		}
		keys[key] = p.Id
		var s *cri.PodSandboxStatus
		_ = l.List(func(ctx context.Context, c model.Client) error {
			r, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.Id})
			s = r.GetStatus()
			return err
		})
		ownNetwork := s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_POD
		if s.GetState() != cri.PodSandboxState_SANDBOX_READY || s == nil || !ownNetwork {
			continue
		}
		ip := s.GetNetwork().GetIp()
		if other := addresses[ip]; ip == "" || other != "" {
			w.violated("each pod has an address, no two the same: %s has %q, as %q", p.Id, ip, other)
		}
		addresses[ip] = p.Id
	}
	for id, o := range told {
		if o.known && o.key != "" && !o.removing && !listed[id] {
			w.violated("each pod that a caller knows of is listed, %s (%s) is not", o.key, id)
			w.Told(model.Removing, model.Object{ID: id}) // once
		}
	}
}

// rank notes the state of a pod or container: states do not go back.
func (w *torture) rank(l *process, id string, state int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objectLocked(id)
	if state < o.rank {
		w.violated("states do not go back, %s does from %d to %d", id, o.rank, state)
	}
	// A pod's event comes at the end of its stop, a container's at once.
	ended := o.pod != "" && state == int32(cri.ContainerState_CONTAINER_EXITED)
	if ended && o.rank < state && o.ranked == l {
		l.wanted[event{id, cri.ContainerEventType_CONTAINER_STOPPED_EVENT}] = time.Now()
	}
	o.rank, o.ranked = max(o.rank, state), l
}

// checkEvents: a subscriber gets an event of each exit.
func (w *torture) checkEvents(l *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e, at := range l.wanted {
		if _, got := l.events[e]; !got && time.Since(at) < eventTime {
			continue
		} else if !got {
			w.violated("there is an event of each change, not %v of %s", e.of, e.id)
		}
		delete(l.wanted, e)
	}
}

func (w *torture) checkContainer(l *process, c *cri.Container) {
	w.mu.Lock()
	w.objectLocked(c.Id).pod = c.PodSandboxId
	w.mu.Unlock()
	w.rank(l, c.Id, int32(c.State))
	if c.State != cri.ContainerState_CONTAINER_EXITED {
		return
	}
	var s *cri.ContainerStatus
	if l.List(func(ctx context.Context, client model.Client) error {
		r, err := client.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: c.Id})
		s = r.GetStatus()
		return err
	}) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.objectLocked(c.Id)
	startFailed := o.code == 128 && o.diskFull // which only podd knew, see Known in simulate/README.md
	if o.exited && o.code != s.ExitCode && !startFailed {
		w.violated("an exit code is true once and for all: %s exited with %d, now with %d", c.Id, o.code, s.ExitCode)
	}
	if !o.exited && !canExit(c.Labels["command"], s) {
		w.violated("an exit code is that of the process: %s, %q, exited with %d, %s: %s", c.Id, c.Labels["command"],
			s.ExitCode, s.Reason, s.Message)
	}
	if !o.exited {
		w.Log("exit: %s with %d %s %s", c.Id, s.ExitCode, s.Reason, s.Message)
	}
	o.exited, o.code = true, s.ExitCode
}

// canExit reports whether a command can exit so, killed or not; 255 is the code of an exit without a status.
func canExit(command string, s *cri.ContainerStatus) bool {
	codes := []int32{137, 143, 255}
	switch {
	case command == "nope":
		return s.ExitCode == 128
	case strings.Contains(command, "exit 3"):
		codes = append(codes, 3)
	case strings.HasPrefix(command, "cat"), strings.HasPrefix(command, "tail"):
		codes = append(codes, 1)
	case command == "true", strings.Contains(command, "exit 0"), command == "sleep 17":
		codes = append(codes, 0)
	}
	return slices.Contains(codes, s.ExitCode) || s.Reason == "StartError"
}

// checkStopped looks for processes of containers whose pod was stopped before.
func (w *torture) checkStopped(told map[string]object) {
	for _, dir := range w.cgroups() {
		for id, o := range told {
			if o.pod == "" || !told[o.pod].stopped || !strings.Contains(filepath.Base(dir), id) {
				continue
			}
			if procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")); len(procs) > 0 {
				w.violated("no process of a stopped pod runs, in %s do %q", dir, procs)
			}
		}
	}
}

// files returns the files of pods.
func (w *torture) files() (paths []string) {
	for _, pattern := range w.Leak().Files {
		files, _ := filepath.Glob(pattern)
		paths = append(paths, files...)
	}
	return paths
}

// left returns the pods that are listed, and files that were not there before.
func (w *torture) left() (names []string) {
	l := w.Runtime()
	if l == nil {
		return []string{"podd does not serve"}
	}
	err := l.List(func(ctx context.Context, c model.Client) error {
		r, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		for _, p := range r.GetItems() {
			names = append(names, p.Metadata.Name)
		}
		return err
	})
	if err != nil {
		names = append(names, err.Error())
	}
	return append(names, slices.DeleteFunc(w.files(), func(f string) bool { return slices.Contains(w.empty, f) })...)
}

// within waits until nothing is missing.
func (w *torture) within(limit time.Duration, what string, missing func() []string) {
	w.Helper()
	w.Log("wait: %s", what)
	for end := time.Now().Add(limit); ; time.Sleep(time.Second) {
		names := missing()
		if len(names) == 0 {
			w.Log("%s", what)
			return
		}
		if time.Now().After(end) {
			w.violated("%s, not after %v: %s", what, limit, strings.Join(names, ", "))
			return
		}
	}
}

// --- faults

// harm does one thing after the other, until ctx ends. It alone starts and ends podd.
func (w *torture) harm(ctx context.Context) {
	faults := []struct {
		name string
		do   func(context.Context, *rand.Rand)
	}{
		{"podd is killed", func(_ context.Context, r *rand.Rand) { w.restart(w.Kill9, r) }},
		{"podd is stopped", func(_ context.Context, r *rand.Rand) { w.restart(w.Stop, r) }},
		{"podd reloads", func(context.Context, *rand.Rand) { _ = syscall.Kill(w.Pid(), syscall.SIGHUP) }},
		{"a helper is stopped", w.stopHelper},
		{"a helper is stopped", w.stopHelper},
		{"a helper is killed", func(_ context.Context, r *rand.Rand) { w.signal(w.helpers(false), r, syscall.SIGKILL) }},
		{"a monitor is killed", func(_ context.Context, r *rand.Rand) { w.signal(w.helpers(true), r, syscall.SIGKILL) }},
		{"a container is killed", w.killContainer},
		{"a container is killed", w.killContainer},
		{"the disk is full", w.fillDisk},
		{"a file of a pod is deleted", w.spoil},
	}
	for {
		r := w.Roll("harm")
		if !w.Pause(ctx, "", time.Duration(r.IntN(3000))*time.Millisecond) {
			return
		}
		f := faults[r.IntN(len(faults))]
		w.Log("fault: %s", f.name)
		w.count(f.name)
		f.do(ctx, r)
	}
}

// mend ends all faults.
func (w *torture) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Log("faults have ended")
	w.calm = true
}

// restart ends podd and starts it again, after a while.
func (w *torture) restart(end func() error, r *rand.Rand) {
	w.down()
	if err := end(); err != nil {
		w.violated("podd ends after SIGTERM and SIGKILL: %v", err)
	}
	time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
	if err := w.Start(w.ctx()); err != nil {
		w.violated("podd starts: %v", err)
		if !w.Running() {
			w.Fatal("podd cannot be started")
		}
	}
	w.serve()
}

// monitorName are the programs that outlive a podd, and a machine.
var monitorName = regexp.MustCompile(`(conmon|containerd-shim-.*|stdio|runsc.*|kernel|linux|virtiofsd|exe)$`)

// helpers returns the processes that podd has started for its pods: those that end with their work, or those that watch
// containers as long as they run, and machines.
func (w *torture) helpers(monitors bool) (pids []int) {
	parents := map[int]int{}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat, err := os.ReadFile(dir + "/stat")
		_, rest, ok := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); err == nil && ok && len(fields) > 1 {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	for pid := range maps.Keys(parents) {
		of := pid
		for of > 1 && of != w.Pid() {
			of = parents[of]
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		child := pid != w.Pid() && of == w.Pid()
		program, _, _ := strings.Cut(string(line), "\x00")
		isMonitor := of != w.Pid() && monitorName.MatchString(program) && strings.Contains(string(line), w.Dir)
		if !monitors && child || monitors && isMonitor {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// signal sends a signal to one of the processes, and returns its pid, or 0.
func (w *torture) signal(pids []int, r *rand.Rand, sig syscall.Signal) int {
	if len(pids) == 0 {
		return 0
	}
	pid := pids[r.IntN(len(pids))]
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	w.Log("%v to %d: %.200s", sig, pid, strings.ReplaceAll(string(line), "\x00", " "))
	if syscall.Kill(pid, sig) != nil {
		return 0
	}
	return pid
}

func (w *torture) stopHelper(ctx context.Context, r *rand.Rand) {
	if pid := w.signal(w.helpers(r.IntN(2) == 0), r, syscall.SIGSTOP); pid > 0 {
		w.Pause(ctx, "", time.Duration(r.IntN(15000))*time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// killContainer kills the processes of a container.
func (w *torture) killContainer(_ context.Context, r *rand.Rand) {
	dirs := w.cgroups()
	if len(dirs) == 0 {
		return
	}
	procs, _ := os.ReadFile(filepath.Join(dirs[r.IntN(len(dirs))], "cgroup.procs"))
	for line := range strings.Lines(string(procs)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			w.signal([]int{pid}, r, syscall.SIGKILL)
		}
	}
}

// fillDisk leaves no space on podd's disk for some seconds.
func (w *torture) fillDisk(ctx context.Context, r *rand.Rand) {
	w.setFull(true)
	defer w.setFull(false)
	file := w.Path("root", "fill")
	defer os.Remove(file)
	f, err := os.Create(file)
	if err != nil {
		return
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for size := len(chunk); size > 0; {
		if _, err := f.Write(chunk[:size]); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			w.Error(err)
			return
		}
	}
	w.Pause(ctx, "", time.Duration(r.IntN(12000))*time.Millisecond)
}

// setFull notes for which pods and containers podd may not have written a status.
func (w *torture) setFull(full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = full
	for _, o := range w.objects {
		o.diskFull = o.diskFull || full
	}
}

// spoil deletes a file that a pod's containers need, as clean-up programs do.
func (w *torture) spoil(_ context.Context, r *rand.Rand) {
	files, _ := filepath.Glob(w.Path("run", "etc", "*", "hostname"))
	if len(files) == 0 {
		return
	}
	file := files[r.IntN(len(files))]
	if os.Remove(file) == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.objectLocked(filepath.Base(filepath.Dir(file))).spoilt = time.Now()
	}
}
