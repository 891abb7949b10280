package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// history is what podd was asked and answered. porcupine looks for an order of the calls on a pod and its containers in
// which each answer follows from those before it, and each call happens between its request and its answer.
type history struct {
	w  *world
	mu sync.Mutex
	// calls are by name and attempt of the pod.
	calls map[string][]porcupine.Operation
	// runs are equal answers to one question, of which only the first and the last count; by pod and question.
	runs map[string]map[string]run
	// alive are the ids that were seen and may be again.
	alive map[string]bool
}

type run struct {
	seen        []sighting
	first, last int
}

// fact is one call that has succeeded.
type fact struct {
	verb string
	sighting
	seen []sighting // what a list or status says of one pod
}

// sighting is a pod or container in an answer. Of a container it has the pod and its name with the attempt.
type sighting struct {
	id, pod, name string
	rank          int // 0: it is absent
}

// add notes that a call has ended now.
func (h *history) add(began time.Time, verb string, about sighting) {
	key, about := h.named(about)
	h.mu.Lock()
	defer h.mu.Unlock()
	if verb == forgets {
		delete(h.runs, key)
	}
	h.calls[key] = append(h.calls[key], h.call(began, fact{verb: verb, sighting: about}))
}

func (h *history) call(began time.Time, f fact) porcupine.Operation {
	return porcupine.Operation{Input: f, Call: int64(began.Sub(h.w.start)), Return: int64(time.Since(h.w.start))}
}

// named returns the key of the history that s belongs to, and s with its name.
func (h *history) named(s sighting) (string, sighting) {
	full := h.w.nameIn(s.id)
	key, _, _ := strings.Cut(full, "#")
	if strings.Contains(full, "/") {
		s.name = full[:strings.LastIndex(full, "#")]
	}
	return key, s
}

// see notes what the answer to a question says, for each pod.
func (h *history) see(began time.Time, question string, all []sighting) {
	byKey := map[string][]sighting{}
	for _, s := range all {
		key, s := h.named(s)
		byKey[key] = append(byKey[key], s)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, seen := range byKey {
		for _, s := range seen {
			h.alive[s.id] = s.rank > 0
		}
		if h.runs[key] == nil {
			h.runs[key] = map[string]run{}
		}
		call := h.call(began, fact{verb: sees, seen: seen})
		r, known := h.runs[key][question]
		switch next := len(h.calls[key]); {
		case !known || !slices.Equal(r.seen, seen):
			r = run{seen, next, next}
		case r.first != r.last:
			h.calls[key][r.last] = call
			continue
		default:
			r.last = next
		}
		h.runs[key][question] = r
		h.calls[key] = append(h.calls[key], call)
	}
}

// request notes what may be seen from now on.
func (h *history) request(request any) {
	switch r := request.(type) {
	case *cri.StartContainerRequest:
		h.add(time.Now(), askedStart, sighting{id: r.GetContainerId()})
	case *cri.RemoveContainerRequest:
		h.add(time.Now(), askedRemove, sighting{id: r.GetContainerId()})
	case *cri.RemovePodSandboxRequest:
		h.add(time.Now(), askedRemove, sighting{id: r.GetPodSandboxId()})
	}
}

// answer notes what an answer says. complete: podd has examined all records.
func (h *history) answer(began time.Time, request, answer any, err error, complete bool) {
	if err != nil {
		if r, ok := request.(*cri.ContainerStatusRequest); ok && status.Code(err) == codes.NotFound && complete {
			h.see(began, "status "+r.GetContainerId(), []sighting{{id: r.GetContainerId()}})
		}
		return
	}
	switch r := request.(type) {
	case *cri.RunPodSandboxRequest:
		h.add(began, wasCreated, sighting{id: answer.(*cri.RunPodSandboxResponse).GetPodSandboxId()})
	case *cri.CreateContainerRequest:
		id := answer.(*cri.CreateContainerResponse).GetContainerId()
		h.add(began, wasCreated, sighting{id: id, pod: r.GetPodSandboxId()})
	case *cri.StartContainerRequest:
		h.add(began, wasStarted, sighting{id: r.GetContainerId()})
	case *cri.StopContainerRequest:
		h.add(began, wasStopped, sighting{id: r.GetContainerId()})
	case *cri.StopPodSandboxRequest:
		h.add(began, wasStopped, sighting{id: r.GetPodSandboxId()})
	case *cri.RemoveContainerRequest:
		h.add(began, wasRemoved, sighting{id: r.GetContainerId()})
	case *cri.RemovePodSandboxRequest:
		h.add(began, wasRemoved, sighting{id: r.GetPodSandboxId()})
	case *cri.ExecSyncRequest:
		h.add(began, ranCommand, sighting{id: r.GetContainerId()})
	case *cri.ListPodSandboxRequest:
		h.pods(began, r.GetFilter(), answer.(*cri.ListPodSandboxResponse).GetItems(), complete)
	case *cri.ListContainersRequest:
		h.containers(began, r.GetFilter(), answer.(*cri.ListContainersResponse).GetContainers(), complete)
	case *cri.ContainerStatusRequest:
		rank := rankOf(answer.(*cri.ContainerStatusResponse).GetStatus())
		h.see(began, "status "+r.GetContainerId(), []sighting{{id: r.GetContainerId(), rank: rank}})
	}
}

func rankOf(c interface{ GetState() cri.ContainerState }) int {
	return map[cri.ContainerState]int{
		cri.ContainerState_CONTAINER_UNKNOWN: rankFailed, cri.ContainerState_CONTAINER_CREATED: rankCreated,
		cri.ContainerState_CONTAINER_RUNNING: rankRunning, cri.ContainerState_CONTAINER_EXITED: rankExited,
	}[c.GetState()]
}

func (h *history) pods(began time.Time, f *cri.PodSandboxFilter, all []*cri.PodSandbox, complete bool) {
	var seen []sighting
	for _, p := range all {
		rank := rankReady
		if p.GetState() != cri.PodSandboxState_SANDBOX_READY {
			rank = rankNotReady
		}
		seen = append(seen, sighting{id: p.GetId(), rank: rank})
	}
	if complete && f == nil {
		seen = h.absent(seen, false)
	}
	h.see(began, fmt.Sprint("pods ", f != nil), seen)
}

func (h *history) containers(began time.Time, f *cri.ContainerFilter, all []*cri.Container, complete bool) {
	var seen []sighting
	for _, c := range all {
		seen = append(seen, sighting{id: c.GetId(), pod: c.GetPodSandboxId(), rank: rankOf(c)})
	}
	if complete && f == nil {
		seen = h.absent(seen, true)
	}
	h.see(began, "containers "+f.GetPodSandboxId(), seen)
}

// absent adds those that were seen before and are not in a list of all pods or of all containers.
func (h *history) absent(seen []sighting, containers bool) []sighting {
	h.mu.Lock()
	alive := maps.Clone(h.alive)
	h.mu.Unlock()
	for _, s := range seen {
		alive[s.id] = false
	}
	for id, is := range alive {
		if is && strings.Contains(h.w.nameIn(id), "/") == containers {
			seen = append(seen, sighting{id: id})
		}
	}
	return seen
}

// forget notes that the disk did not take the last states of those with these ids, when podd has ended.
func (h *history) forget(stale map[string]bool) {
	for id := range stale {
		h.mu.Lock()
		alive := h.alive[id]
		h.mu.Unlock()
		if alive {
			h.add(time.Now(), forgets, sighting{id: id})
		}
	}
}

// check returns the histories that have no order, reduced to the calls that contradict each other.
func (h *history) check() (broken []string) {
	for _, key := range slices.Sorted(maps.Keys(h.calls)) {
		calls := h.calls[key]
		if possible(calls) {
			continue
		}
		for i := len(calls) - 1; i >= 0; i-- {
			without := slices.Delete(slices.Clone(calls), i, i+1)
			if !allows(calls[i].Input.(fact).verb) && !possible(without) {
				calls = without
			}
		}
		broken = append(broken, h.w.rename(ruleOrder+": "+key+"\n"+describe(calls)))
	}
	return broken
}

// describe prints calls.
func describe(calls []porcupine.Operation) string {
	var lines []string
	for _, c := range calls {
		f := c.Input.(fact)
		if allows(f.verb) { // as a rule it is of no interest
			continue
		}
		line := fmt.Sprintf("  %.6f to %.6f: podd %s %s", time.Duration(c.Call).Seconds(),
			time.Duration(c.Return).Seconds(), f.verb, f.id)
		for _, s := range f.seen {
			line += fmt.Sprintf("%s: rank %d, ", s.id, s.rank)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
