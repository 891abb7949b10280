package streaming

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"

	"github.com/podd-project/podd/cmd/budget"
)

// pendingConns are the connections that are no session yet. They need no token, so any user of the node can open them.
// When the budget is used up, a new connection replaces the oldest one of the user with most of them: idle connections
// of one user do not keep those of another from becoming sessions.
type pendingConns struct {
	budget *budget.Pool

	mu    sync.Mutex
	conns map[net.Conn]pendingConn
	// byUser counts the connections of each user.
	byUser map[string]int
	opened uint64
}

type pendingConn struct {
	user  string
	grant *budget.Grant
	// number grows with each connection.
	number uint64
}

func newPendingConns(pool *budget.Pool) *pendingConns {
	return &pendingConns{budget: pool, conns: map[net.Conn]pendingConn{}, byUser: map[string]int{}}
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
	grant, err := p.budget.Try("", 1)
	if err != nil {
		if replaced = p.victim(); replaced == nil {
			return c
		}
		grant = p.forget(replaced)
	}
	p.opened++
	p.conns[c] = pendingConn{user, grant, p.opened}
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
	p.forget(c).Release()
}

// forget returns the grant of the connection, nil if it was replaced already.
func (p *pendingConns) forget(c net.Conn) *budget.Grant {
	pending, ok := p.conns[c]
	if !ok {
		return nil
	}
	delete(p.conns, c)
	if p.byUser[pending.user]--; p.byUser[pending.user] == 0 {
		delete(p.byUser, pending.user)
	}
	return pending.grant
}

// closeNow closes the TCP connection: a TLS connection first sends a message, and may wait for the client.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}
