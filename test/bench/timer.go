package main

import (
	"fmt"
	"slices"
	"time"
)

// step is a timed part of a pod's life.
type step struct {
	name string
	do   func() error
}

// timer collects the durations of the steps of one life.
type timer struct {
	names []string
	took  map[string]time.Duration
	total time.Duration
}

// run runs the steps in order, and stops at the first that fails.
func (t *timer) run(steps []step) error {
	if t.took == nil {
		t.took = map[string]time.Duration{}
	}
	begin := time.Now()
	for _, s := range steps {
		start := time.Now()
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		t.names, t.took[s.name] = append(t.names, s.name), time.Since(start)
	}
	t.total = time.Since(begin)
	return nil
}

// samples are durations by name, with the names in the order of their first sample.
type samples struct {
	names []string
	took  map[string][]time.Duration
}

func (s *samples) add(name string, d time.Duration) {
	if s.took == nil {
		s.took = map[string][]time.Duration{}
	}
	if _, known := s.took[name]; !known {
		s.names = append(s.names, name)
	}
	s.took[name] = append(s.took[name], d)
}

// addAll adds the steps and, under the name, their sum.
func (s *samples) addAll(t *timer, name string) {
	for _, n := range t.names {
		s.add(n, t.took[n])
	}
	s.add(name, t.total)
}

// join adds all samples of other.
func (s *samples) join(other *samples) {
	for _, name := range other.names {
		for _, d := range other.took[name] {
			s.add(name, d)
		}
	}
}

// quantile returns the smallest sample that at least q of all are no larger than; 0 when there is none.
func (s *samples) quantile(name string, q float64) time.Duration {
	all := slices.Sorted(slices.Values(s.took[name]))
	if len(all) == 0 {
		return 0
	}
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
