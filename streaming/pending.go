package streaming

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// pendingConns are the connections that are not sessions yet. They need no token, so any user of the node can open
// them. When there are too many, a new connection replaces the oldest one of the user with most of them: idle
// connections of one user do not keep those of another from becoming sessions.
type pendingConns struct {
	admit func() (release func(), err error)

	mu    sync.Mutex
	conns map[net.Conn]pendingConn
	// byUser counts the connections of each user.
	byUser map[string]int
	opened uint64
}

type pendingConn struct {
	user    string
	release func()
	// number grows with each connection.
	number uint64
}

func newPendingConns(admit func() (release func(), err error)) *pendingConns {
	return &pendingConns{admit: admit, conns: map[net.Conn]pendingConn{}, byUser: map[string]int{}}
}

// track is http.Server.ConnState.
func (p *pendingConns) track(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		if replaced := p.add(c, userOf(c)); replaced != nil {
			closeNow(replaced)
		}
	case http.StateHijacked, http.StateClosed:
		p.remove(c)
	}
}

// add returns the connection that c replaces, nil if there is room.
func (p *pendingConns) add(c net.Conn, user string) (replaced net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	release, err := p.admit()
	if err != nil {
		if replaced = p.victim(); replaced == nil {
			return c
		}
		release = p.forget(replaced)
	}
	p.opened++
	p.conns[c] = pendingConn{user, release, p.opened}
	p.byUser[user]++
	return replaced
}

// victim returns the oldest connection of a user who has most of them.
func (p *pendingConns) victim() (oldest net.Conn) {
	most := 0
	for _, n := range p.byUser {
		most = max(most, n)
	}
	var number uint64
	for c, pending := range p.conns {
		if p.byUser[pending.user] == most && (oldest == nil || pending.number < number) {
			oldest, number = c, pending.number
		}
	}
	return oldest
}

func (p *pendingConns) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(c)()
}

// forget returns what gives back the place of the connection. It does nothing if another connection has taken the
// place.
func (p *pendingConns) forget(c net.Conn) (release func()) {
	pending, ok := p.conns[c]
	if !ok {
		return func() {}
	}
	delete(p.conns, c)
	if p.byUser[pending.user]--; p.byUser[pending.user] == 0 {
		delete(p.byUser, pending.user)
	}
	return pending.release
}

// closeNow closes the TCP connection: a TLS connection first sends a message, and may wait for the client.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
