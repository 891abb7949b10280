package admin

import "github.com/podd-project/podd/streaming"

type sessionsNode interface {
	// Sessions returns the exec, attach and port-forward sessions, oldest first.
	Sessions() []streaming.SessionInfo
}

func (rt router) sessions(n sessionsNode) { list(rt, "/sessions", n.Sessions) }
