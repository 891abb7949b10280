package streaming

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// SessionInfo describes a session. It has no command line, which may contain secrets.
type SessionInfo struct {
	// Request is the id of the CRI call, as in the log.
	Request string `json:"request"`
	// Kind is exec, attach or portforward.
	Kind string `json:"kind"`
	Pod  string `json:"pod"`
	// Container is empty for port-forward.
	Container string    `json:"container,omitempty"`
	Started   time.Time `json:"started"`
	// IdleSeconds is the time since a byte moved in either direction.
	IdleSeconds float64 `json:"idle_seconds"`
}

// openSessions are the sessions in progress. The zero value is ready to use.
type openSessions struct {
	mu  sync.Mutex
	all map[*session]SessionInfo
}

// add lists a session until the returned function is called.
func (o *openSessions) add(s *session, info SessionInfo) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*session]SessionInfo{}
	}
	o.all[s] = info
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.all, s)
	}
}

// infoOf describes the session of a ticket that began at start.
func (s *Server) infoOf(t *ticket, start time.Time) SessionInfo {
	info := SessionInfo{Request: t.id, Kind: kindOf(t.request), Pod: s.podOf(t.request), Started: start}
	if req, ok := t.request.(interface{ GetContainerId() string }); ok {
		info.Container = req.GetContainerId()
	}
	return info
}

// Sessions returns the sessions in progress, oldest first.
func (s *Server) Sessions() []SessionInfo {
	s.open.mu.Lock()
	defer s.open.mu.Unlock()
	var out []SessionInfo
	for sess, info := range s.open.all {
		info.IdleSeconds = sess.idleFor().Seconds()
		out = append(out, info)
	}
	slices.SortFunc(out, func(a, b SessionInfo) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Container, b.Container))
	})
	return out
}
