package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/test/simulate/kubelet"
)

// The sentences that the invariants stand for.
const (
	ruleName    = "CRI, RunPodSandbox: at most one ready pod sandbox of a name and attempt"
	ruleNetwork = "CRI: a ready pod sandbox has its network; PROMISES: no two pods have one address"
	ruleLive    = "CRI, StopPodSandbox: containers of the sandbox are terminated; RemovePodSandbox: and removed"
	ruleFreed   = "CRI, StopPodSandbox: addresses of the sandbox are reclaimed"
	ruleExit    = "CRI, ContainerStatus: an exit code is that of the process, once and for all"
	ruleBack    = "PROMISES: a restart does not change the reported state; states do not go back"
	ruleEvents  = "CRI, GetContainerEvents: an event of each change, in order"
	ruleListed  = "PROMISES: each pod and container that a caller knows of is listed, also after a power failure"
	ruleStopped = "CRI, StopPodSandbox: a stopped sandbox is not ready again"
	ruleCreate  = "CRI, CreateContainer: a container is created in a ready pod sandbox"
	ruleSpoilt  = "sandbox: a pod that has lost a file that its containers need is not ready a minute later"
	ruleRetry   = "CRI, RunPodSandbox: a retry with the same name gets the same id"
	ruleRun     = "Kubernetes: once faults have ended, pods that are wanted run"
	ruleOrder   = "CRI: there is an order of the calls in which each answer follows from those before it"
	ruleList    = "PROMISES: lists are answered from memory, at once"
	ruleCode    = "CRI: an error has a gRPC status, whose code says what is wrong; each call is reported once"
	ruleEnd     = "PROMISES: a failure of any step leaves nothing behind"
)

// object is what callers know of a pod or container.
type object struct {
	pod      bool
	key      string // name and attempt of a pod
	rank     int    // of the state that was reported last
	known    bool   // a caller has its id, or saw a pod that is ready or a container that runs
	removing bool   // a removal was requested
	gone     bool   // a removal was answered
	stopped  bool   // a stop was answered
	exited   bool
	code     int32
	ended    time.Time // the pod was not ready any longer
	spoilt   time.Time // when a file was deleted
	stopping bool      // a stop was requested
}

// truth is what callers were told, compared with the machine and with what podd says now.
type truth struct {
	w  *world
	mu sync.Mutex
	// objects are by id.
	objects map[string]*object
	order   []string  // their ids, sorted
	seen    *podd     // the podd of the last check, with the ranks that it listed then
	since   time.Time // the first check of seen
	ranks   map[string]int
}

func newTruth(w *world) *truth {
	return &truth{w: w, objects: map[string]*object{}}
}

func (w *truth) object(id string) *object {
	if w.objects[id] == nil {
		w.objects[id] = &object{}
	}
	return w.objects[id]
}

func (w *truth) told(what kubelet.What, answer kubelet.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.object(answer.ID)
	switch what {
	case kubelet.Known:
		if o.known = true; answer.Name != "" {
			w.podAnswered(o, answer)
		}
	case kubelet.Stopping:
		o.stopping = true
	case kubelet.Stopped:
		o.stopped = true
	case kubelet.Removing:
		o.removing = true
	case kubelet.Removed:
		o.gone = true
	}
}

func (w *truth) podAnswered(pod *object, answer kubelet.Object) {
	id, key := answer.ID, fmt.Sprintf("%s.%d", answer.Name, answer.Attempt)
	for other, o := range w.objects {
		if o.key == key && other != id && !o.removing && !o.stopped && o.rank == rankReady {
			w.w.violated(ruleRetry, "%s has ids %s and %s", key, other, id)
		}
	}
	if pod.stopped {
		w.w.violated(ruleStopped, "%s is returned as %s", id, key)
	}
	pod.pod, pod.key, pod.rank = true, key, max(pod.rank, rankReady)
}

// spoil deletes a file of a pod.
func (w *truth) spoil(pod string) {
	w.w.log("delete: the hostname of %s", pod)
	if os.Remove(filepath.Join(w.w.m.Dir, "run/etc", pod, "hostname")) == nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.object(pod).spoilt = time.Now()
	}
}

// Ranks of states: they only increase.
const (
	rankReady = iota + 1
	rankNotReady
)

func podRank(s record.PodState) int {
	if s == record.PodReady {
		return rankReady
	}
	return rankNotReady
}

func containerRank(s record.ContainerState) int {
	return 1 + slices.Index([]record.ContainerState{
		record.ContainerCreating, record.ContainerCreated, record.ContainerRunning, record.ContainerExited,
	}, s)
}

// watch compares, until ctx ends.
func (w *truth) watch(ctx context.Context, n *node) {
	for w.w.pause(ctx, "check", 300*time.Millisecond) {
		if p := n.podd(); p != nil && !p.isDead() {
			w.check(p)
		}
	}
}

// check takes no time: it is called when nothing else runs.
func (w *truth) check(p *podd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	recovered := p.isRecovered()
	if w.seen != p {
		w.since = time.Now()
	}
	pods, containers := p.e.Pods(), p.e.Containers()
	p.events.log()
	w.checkMachine(pods, recovered)
	ranks := map[string]int{}
	seen := map[string]string{}
	for _, s := range pods {
		ranks[s.ID] = podRank(s.Status().State)
		if s.Status().State == record.PodStopping && w.seen == p && w.ranks[s.ID] == rankReady {
			ranks[s.ID] = rankReady // the event comes at the end of the stop
		}
		w.checkPod(s, recovered, seen)
	}
	for _, c := range containers {
		ranks[c.ID] = containerRank(c.Status().State)
		w.checkContainer(c, recovered)
	}
	if p.complete() {
		for _, id := range w.ids() {
			if o := w.objects[id]; ranks[id] == 0 && o.known && !o.removing {
				if !w.podRemoving(id) {
					w.w.violated(ruleListed, "%s is not listed", id)
				}
				o.removing = true // once
			}
		}
	}
	if w.seen == p {
		w.checkEvents(p, ranks)
	}
	w.seen, w.ranks = p, ranks
}

func (w *truth) ids() []string {
	if len(w.order) != len(w.objects) {
		w.order = w.w.sorted(w.objects)
	}
	return w.order
}

// podRemoving reports whether the pod of a container is being removed.
func (w *truth) podRemoving(id string) bool {
	name := w.w.nameIn(id)
	pod, _, of := strings.Cut(name, "/")
	if !of {
		return false
	}
	for other, o := range w.objects {
		if o.removing && w.w.nameIn(other) == pod {
			return true
		}
	}
	return false
}

func (w *truth) checkMachine(pods []*sandbox.Pod, recovered bool) {
	if !recovered {
		return
	}
	alive := w.w.m.Runtimes["runc"].Alive()
	for _, id := range w.w.sorted(alive) {
		if o := w.objects[alive[id]]; o != nil && (o.gone || o.stopped) {
			w.w.violated(ruleLive, "%s runs, its pod %s was stopped", id, alive[id])
			o.gone, o.stopped = false, false
		}
	}
	leases, _ := w.w.m.Network.Leases() // the fake has no errors
	for _, id := range w.ids() {
		if o := w.objects[id]; o.stopped && len(leases[id]) > 0 {
			w.w.violated(ruleFreed, "%s has %v", id, leases[id])
			o.stopped = false
		}
	}
}

func (w *truth) checkPod(s *sandbox.Pod, recovered bool, ready map[string]string) {
	o, status := w.object(s.ID), s.Status()
	o.pod = true
	rank := podRank(status.State)
	if rank < o.rank && (recovered || !w.w.disk.isStale(s.ID)) {
		w.w.violated(ruleBack, "pod %s is %s again", s.ID, status.State)
	}
	o.rank = max(o.rank, rank)
	if rank == rankReady {
		o.ended = time.Time{}
	} else if o.ended.IsZero() {
		o.ended = time.Now()
	}
	o.known = o.known || status.State == record.PodReady
	if status.State != record.PodReady || !recovered {
		return
	}
	if !o.spoilt.IsZero() && !o.stopping && min(time.Since(o.spoilt), time.Since(w.since)) > time.Minute {
		w.w.violated(ruleSpoilt, "%s", s.ID)
		o.spoilt = time.Time{}
	}
	if o.stopped {
		w.w.violated(ruleStopped, "pod %s is ready", s.ID)
		o.stopped = false
	}
	m := s.Config.GetMetadata()
	key := fmt.Sprintf("%s.%d", m.GetName(), m.GetAttempt())
	if other := ready[key]; other != "" {
		w.w.violated(ruleName, "%s and %s", other, s.ID)
	}
	ready[key] = s.ID
	leases, _ := w.w.m.Network.Leases() // the fake has no errors
	if s.Netns == "" {
		return
	}
	if got := leases[s.ID]; !slices.Equal(got, status.IPs) || len(got) == 0 {
		w.w.violated(ruleNetwork, "pod %s says %v, its network %v", s.ID, status.IPs, got)
	}
	for other, ips := range leases {
		if other != s.ID && slices.ContainsFunc(ips, func(ip string) bool { return slices.Contains(status.IPs, ip) }) {
			w.w.violated(ruleNetwork, "pods %s and %s have one address", s.ID, other)
		}
	}
}

func (w *truth) checkContainer(c *sandbox.Container, recovered bool) {
	o, status := w.object(c.ID), c.Status()
	rank := containerRank(status.State)
	if rank < o.rank && !w.w.disk.isStale(c.ID) {
		w.w.violated(ruleBack, "container %s is %s again, rank %d", c.ID, status.State, o.rank)
	}
	if end := w.object(c.PodID).ended; o.rank == 0 && !end.IsZero() && c.CreatedAt.After(end) {
		w.w.violated(ruleCreate, "%s was not", c.ID)
	}
	o.rank = max(o.rank, rank)
	o.known = o.known || status.State == record.ContainerRunning // one that nobody has started may be replaced by a retry
	if status.State != record.ContainerExited {
		return
	}
	if o.exited {
		removing := o.removing || w.podRemoving(c.ID) // a removal deletes the runtime's copy, whatever the disk took
		if o.code != status.ExitCode && !w.w.disk.forgot(c.ID, o.code) && !removing {
			w.w.violated(ruleExit, "%s exited with %d, now with %d", c.ID, o.code, status.ExitCode)
		}
		o.code = status.ExitCode
		return
	}
	o.exited, o.code = true, status.ExitCode
	if reason := w.wrongExit(c, o, status); reason != "" {
		w.w.violated(ruleExit, "%s exited with %d %s: %s", c.ID, status.ExitCode, status.Reason, reason)
	}
}

// wrongExit says why a code that is reported for the first time is wrong.
func (w *truth) wrongExit(c *sandbox.Container, o *object, status record.ContainerStatus) string {
	x, ended := w.w.m.Runtimes["runc"].Exits()[c.ID]
	rebooted := w.w.rebooted(c.ID)
	switch {
	case status.Reason == "StartError":
		return "" // the start has failed
	case rebooted && status.ExitCode == 255:
		return ""
	case !ended:
		return "it has not"
	case status.ExitCode != x.Code:
		return fmt.Sprintf("it was %d", x.Code)
	case (status.Reason == "OOMKilled") != x.OOM:
		return fmt.Sprintf("out of memory: %v", x.OOM)
	}
	return ""
}

const (
	created = cri.ContainerEventType_CONTAINER_CREATED_EVENT
	started = cri.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = cri.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = cri.ContainerEventType_CONTAINER_DELETED_EVENT
)

// checkEvents compares the lists of two checks with the events between them.
func (w *truth) checkEvents(p *podd, now map[string]int) {
	all := map[string]int{}
	maps.Copy(all, now)
	maps.Copy(all, w.ranks)
	for _, id := range w.w.sorted(all) {
		before, after := w.ranks[id], now[id]
		if before == after {
			continue
		}
		var want []cri.ContainerEventType
		switch o := w.objects[id]; {
		case after == 0:
			want = append(want, deleted)
		case o.pod && before == 0 && after == rankReady:
			want = append(want, created, started)
		case o.pod && before == rankReady && after == rankNotReady:
			want = append(want, stopped)
		case !o.pod && before > 0 && after == containerRank(record.ContainerRunning):
			want = append(want, started)
		case !o.pod && before > 0 && after == containerRank(record.ContainerExited):
			want = append(want, stopped)
		}
		for _, t := range want {
			if !p.events.has(id, t) {
				w.w.violated(ruleEvents, "no event %v of %s, which went from %d to %d", t, id, before, after)
			}
		}
	}
}

func (d *disk) isStale(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stale[id]
}

// forgot reports whether the disk did not take the exit of a container, and nothing else has it: neither the runtime,
// after a power loss, nor podd, which alone knows that a start failed.
func (d *disk) forgot(id string, code int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost[id] || code == 128 && d.refused[id]
}

// sorted returns the keys of m, which are ids, in the order of their names.
func (w *world) sorted(m any) []string {
	var keys []string
	switch m := m.(type) {
	case map[string]string:
		keys = slices.Collect(maps.Keys(m))
	case map[string]int:
		keys = slices.Collect(maps.Keys(m))
	case map[string]*object:
		keys = slices.Collect(maps.Keys(m))
	}
	names := map[string]string{}
	for _, key := range keys {
		names[key] = w.nameIn(key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(names[a], names[b]), cmp.Compare(a, b))
	})
	return keys
}

// events is what one subscriber got.
type events struct {
	w   *world
	mu  sync.Mutex
	got map[string][]cri.ContainerEventType
	// fresh are lines for the log.
	fresh []string
}

// subscribe subscribes to the events of p until it ends.
func subscribe(w *world, p *podd) *events {
	s := &events{w: w, got: map[string][]cri.ContainerEventType{}}
	stream, err := p.cri().GetContainerEvents(p.conn, &cri.GetEventsRequest{})
	if err != nil {
		w.t.Error(err)
		return s
	}
	go func() {
		for e, err := stream.Recv(); err == nil; e, err = stream.Recv() {
			s.note(e)
		}
	}()
	return s
}

// note compares an event with those before it, and with the statuses that it has.
func (s *events) note(e *cri.ContainerEventResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, t := e.GetContainerId(), e.GetContainerEventType()
	if got := s.got[id]; len(got) > 0 && got[len(got)-1] >= t {
		s.w.violated(ruleEvents, "event %v of %s after %v", t, id, got)
	}
	s.got[id] = append(s.got[id], t)
	if reason := contradiction(e); reason != "" {
		s.w.violated(ruleEvents, "event %v of %s says that %s", t, id, reason)
	}
	s.fresh = append(s.fresh, fmt.Sprintf("event: %v of %s", t, id))
}

// log logs the events since the last call. It is called when nothing else runs: an event of the moment in which podd is
// killed may come or not.
func (s *events) log() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.fresh {
		s.w.log("%s", line)
	}
	s.fresh = nil
}

// contradiction says which status in an event cannot be after it.
func contradiction(e *cri.ContainerEventResponse) string {
	t, id, pod := e.GetContainerEventType(), e.GetContainerId(), e.GetPodSandboxStatus()
	if id == pod.GetId() && t >= stopped && pod.GetState() == cri.PodSandboxState_SANDBOX_READY {
		return "it is ready"
	}
	for _, c := range e.GetContainersStatuses() {
		switch {
		case c.GetId() != id:
		case t == deleted:
			return "it is there"
		case t == started && c.GetState() < cri.ContainerState_CONTAINER_RUNNING,
			t == stopped && c.GetState() != cri.ContainerState_CONTAINER_EXITED:
			return fmt.Sprintf("it is %v", c.GetState())
		}
	}
	return ""
}

func (s *events) has(id string, t cri.ContainerEventType) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.got[id], t)
}
