// Package budget bounds what users of the node may cost podd: memory, descriptors, threads and time.
//
// A Pool is shared by calls of many pods and counts what is in use. A Limit bounds a single object, such as one image.
// Both count what they refused, for `podd status`. table.go constructs all of them. BUDGETS.md lists them for
// operators, with the limits that are constants of other packages; a test compares it with the code.
//
// It is a leaf: every package may import it, and it imports nothing of podd.
package budget

import "sync/atomic"

// Units of budgets.
const (
	Bytes       = "bytes"
	Checkpoints = "checkpoints"
	Connections = "connections"
	Entries     = "entries"
	Sessions    = "sessions"
)

// Usage is the state of one budget, as `podd status` prints it.
type Usage struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Limit is the maximum over all owners, or of one object.
	Limit int64 `json:"limit"`
	// PerOwner is the maximum of one owner, and Owner says what that is; 0 and "" if there is none.
	PerOwner int64  `json:"per_owner,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// InUse and Highest are what is in use now, and the most that was since the start. A Limit has the largest object.
	InUse   int64 `json:"in_use"`
	Highest int64 `json:"highest"`
	// Refused counts the requests that were refused since the start.
	Refused uint64 `json:"refused"`
}

// Limit bounds one object. A nil Limit has no bound.
type Limit struct {
	name, unit string
	limit      int64
	highest    atomic.Int64
	refused    atomic.Uint64
}

// Max is the largest size that is allowed.
func (l *Limit) Max() int64 { return l.limit }

// Check returns a RefusedError if an object of size n is too large. What names the object: "image config".
func (l *Limit) Check(what string, n int64) error {
	if l == nil {
		return nil
	}
	if n > l.limit {
		l.refused.Add(1)
		return &RefusedError{Budget: l.name, Unit: l.unit, Owner: what, Limit: l.limit, Want: n}
	}
	raise(&l.highest, n)
	return nil
}

// Usage returns the limit, the largest object that was allowed and how many were refused.
func (l *Limit) Usage() Usage {
	return Usage{Name: l.name, Unit: l.unit, Limit: l.limit, Highest: l.highest.Load(), Refused: l.refused.Load()}
}

// raise sets highest to n if n is larger.
func raise(highest *atomic.Int64, n int64) {
	for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
	}
}
