// Package budget bounds what users of the node may cost podd: memory, descriptors, threads and time.
//
// A Pool is shared by calls of many pods. It counts the shares in use and the refused ones, for `podd status`. table.go
// constructs all pools. BUDGETS.md lists them for operators, with the limits that are constants of other packages; a
// test compares it with the code.
//
// The engine and the daemon import it. Mechanisms declare the functions that they need of a pool, and get them from the
// daemon. It imports nothing of podd.
package budget

// Units of budgets.
const (
	Bytes       = "bytes"
	Checkpoints = "checkpoints"
	Connections = "connections"
	Mounts      = "mounts"
	Sessions    = "sessions"
)

// Usage is the state of one budget, as `podd status` prints it.
type Usage struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Limit is the maximum over all owners.
	Limit int64 `json:"limit"`
	// PerOwner is the maximum of one owner, and Owner says what that is; 0 and "" if there is none.
	PerOwner int64  `json:"per_owner,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// InUse is the amount in use, and Peak its maximum since the start.
	InUse int64 `json:"in_use"`
	Peak  int64 `json:"peak"`
	// Refused counts the requests that were refused since the start.
	Refused uint64 `json:"refused"`
}
