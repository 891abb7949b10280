package simulate

import (
	"maps"
	"time"

	"github.com/anishathalye/porcupine"
)

// The verbs of facts. A call that fails may have an effect later, so its request counts, not its answer.
const (
	askedStart  = "was asked to start"
	askedRemove = "was asked to remove"
	wasCreated  = "has created"
	wasStarted  = "has started"
	wasStopped  = "has stopped"
	wasRemoved  = "has removed"
	ranCommand  = "has run a command in"
	sees        = "answers"
	forgets     = "was killed and its disk had not taken the state of"
)

// The verbs of sightings.
const (
	isThere  = "is there"
	isAbsent = "is absent"
)

// Ranks of objects: they only increase, unless podd forgets. Pods have rankReady and rankNotReady.
const (
	rankFailed  = iota + 1 // of containers: the creation has failed, and its undo
	rankCreated            // from here on as containerRank
	rankRunning
	rankExited
	rankGone
)

// allows reports whether more is possible after a fact of that verb.
func allows(verb string) bool { return verb == askedStart || verb == askedRemove || verb == forgets }

// member is a pod or container as the model has it.
type member struct {
	pod, name                            string
	rank                                 int
	known                                bool // a caller has its id or saw it ready or running
	starting, removing, stopped, forgets bool
}

// members are the pods of one name and attempt, with their containers, by id.
type members map[string]member

// model is the contract of CRI. What the environment does, such as an exit, may happen at any time.
var model = porcupine.Model{
	Init: func() any { return members{} },
	Step: func(state, in, _ any) (bool, any) {
		all := maps.Clone(state.(members))
		return all.step(in.(fact)), all
	},
	Equal: func(a, b any) bool { return maps.Equal(a.(members), b.(members)) },
}

// step changes all to what it is after f, and returns false if f contradicts it.
func (all members) step(f fact) bool {
	if f.verb != sees {
		return all.act(f.verb, f.sighting)
	}
	for _, s := range f.seen {
		verb := isThere
		if s.rank == 0 {
			verb = isAbsent
		}
		if !all.act(verb, s) {
			return false
		}
	}
	return true
}

func (all members) act(verb string, s sighting) (ok bool) {
	m := all[s.id]
	if m.name = s.name; s.pod != "" {
		m.pod = s.pod
	}
	if s.name != "" {
		ok = all.actOnContainer(&m, verb, s)
	} else {
		ok = all.actOnPod(&m, verb, s)
	}
	all[s.id] = m
	return ok
}

func (all members) actOnPod(m *member, verb string, s sighting) bool {
	switch verb {
	case isThere, wasCreated:
		rank := max(s.rank, rankReady)
		if m.rank > rank || rank == rankReady && (m.stopped || all.otherReady(s.id)) {
			return false
		}
		m.rank, m.known = rank, m.known || rank == rankReady
		return true
	case wasStopped, wasRemoved, askedRemove:
		for id, c := range all {
			if c.pod == s.id {
				if verb != askedRemove && c.rank >= rankCreated {
					c.rank = max(c.rank, rankExited)
				}
				if verb == wasRemoved {
					c.rank = rankGone
				}
				c.removing = c.removing || verb == askedRemove
				all[id] = c
			}
		}
	}
	switch verb {
	case wasStopped:
		m.rank, m.stopped = max(m.rank, rankNotReady), true
	case forgets:
		if m.rank < rankGone {
			m.rank = 0
		}
	default:
		return m.common(verb, false)
	}
	return true
}

// otherReady reports whether a pod with another id is ready.
func (all members) otherReady(id string) bool {
	for other, m := range all {
		if m.name == "" && other != id && m.rank == rankReady {
			return true
		}
	}
	return false
}

func (all members) actOnContainer(m *member, verb string, s sighting) bool {
	pod := all[m.pod]
	switch verb {
	case wasCreated:
		if m.rank > rankCreated || pod.rank > rankReady || all.otherCreated(s) {
			return false
		}
		m.rank, m.known = rankCreated, true
	case wasStarted:
		if m.rank > rankCreated || pod.stopped {
			return false
		}
		m.rank, m.known = rankRunning, true
	case wasStopped:
		if m.rank >= rankCreated {
			m.rank = max(m.rank, rankExited)
		}
	case ranCommand:
		return m.observe(rankRunning, pod)
	case isThere:
		return m.observe(s.rank, pod)
	case askedStart:
		m.starting = true
	case forgets:
		if m.rank < rankGone {
			m.rank, m.forgets = 0, true
		}
	default:
		return m.common(verb, pod.removing || pod.rank == rankGone)
	}
	return true
}

// observe reports whether a container may have this state, and notes it.
func (m *member) observe(rank int, pod member) bool {
	alive := rank == rankCreated || rank == rankRunning
	if m.rank > rank || alive && pod.stopped && !m.forgets || rank == rankRunning && m.rank < rank && !m.starting {
		return false
	}
	m.rank, m.known = rank, m.known || rank == rankRunning
	return true
}

// otherCreated reports whether another container of the same name waits for its start.
func (all members) otherCreated(s sighting) bool {
	for id, m := range all {
		if m.name == s.name && id != s.id && m.rank == rankCreated {
			return true
		}
	}
	return false
}

// common is the step of pods and containers alike.
func (m *member) common(verb string, removing bool) bool {
	switch verb {
	case askedRemove:
		m.removing = true
	case wasRemoved:
		m.rank = rankGone
	case isAbsent:
		if m.known && !m.removing && !removing && m.rank < rankGone {
			return false
		}
		m.rank = rankGone
	}
	return true
}

// possible reports whether calls have an order, or none was found in time.
func possible(calls []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(model, calls, 2*time.Second) != porcupine.Illegal
}
