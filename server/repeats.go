package server

import (
	"sync"
	"time"
)

// repeatPeriod is the time between two lines about a command that fails again and again, as a probe does; maxRepeats
// the number of different ones that are remembered.
const (
	repeatPeriod = 10 * time.Minute
	maxRepeats   = 1000
)

// repeats limits the log lines about failures that repeat: one in each repeatPeriod.
type repeats struct {
	mu   sync.Mutex
	last map[string]repetition
}

// repetition is a failure: when it was logged last, and how often it has happened since then.
type repetition struct {
	logged time.Time
	held   int
}

// next counts a failure, and reports whether it is to be logged now, with the number of those that were not.
func (r *repeats) next(failure string, now time.Time) (held int, log bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, known := r.last[failure]
	if known && now.Sub(one.logged) < repeatPeriod {
		one.held++
		r.last[failure] = one
		return 0, false
	}
	if r.last == nil || !known && len(r.last) == maxRepeats {
		r.last = map[string]repetition{} // the containers of old ones may be gone
	}
	r.last[failure] = repetition{logged: now}
	return one.held, true
}
