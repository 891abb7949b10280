package streaming

import (
	"net"
	"testing"

	"github.com/podd-project/podd/sandbox/budget"
)

// TestUserOfRange: somebody with a range of subordinate uids, who uses each of them once, does not replace the
// connection of another user.
func TestUserOfRange(t *testing.T) {
	p := newPendingConns(limitsOf(budget.New(1, 1, 8)).Pending)
	var all []net.Conn
	add := func(uid uint32) net.Conn {
		c, _ := net.Pipe()
		all = append(all, c)
		return p.add(c, userName(uid))
	}
	add(0)
	for i := range uint32(50) {
		if replaced := add(1<<16 + i); replaced == all[0] {
			t.Fatalf("connection %d of a range replaces that of root", i)
		}
	}
	for _, c := range all {
		p.remove(c)
	}
	for _, uids := range [][2]uint32{{0, 1000}, {1000, 1001}, {65534, 65536}, {2 << 16, 3 << 16}} {
		if userName(uids[0]) == userName(uids[1]) {
			t.Errorf("uids %d are one user, want two", uids)
		}
	}
}
