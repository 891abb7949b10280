package nri

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// stats counts the calls of the plugins of one name.
type stats struct {
	mu    sync.Mutex // guards calls
	calls map[string]*Calls
}

// Calls are the calls of one verb.
type Calls struct {
	Verb string `json:"verb"`
	// Total are all, Refused those that the plugin answered with an error, Failed those that it did not answer in time or
	// answered with rubbish.
	Total   uint64 `json:"total"`
	Refused uint64 `json:"refused,omitempty"`
	Failed  uint64 `json:"failed,omitempty"`
	// Time is the time of all calls together.
	Time time.Duration `json:"time"`
}

func (s *stats) add(verb string, took time.Duration, err error, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]*Calls{}
	}
	c := s.calls[verb]
	if c == nil {
		c = &Calls{Verb: verb}
		s.calls[verb] = c
	}
	c.Total++
	c.Time += took
	switch {
	case failed:
		c.Failed++
	case err != nil:
		c.Refused++
	}
}

func (s *stats) list() []Calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Calls
	for _, c := range s.calls {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Calls) int { return cmp.Compare(a.Verb, b.Verb) })
	return out
}
