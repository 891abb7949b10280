package garbage

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// TroubleKind says what an administrator can do about a Trouble.
type TroubleKind string

// The kinds of trouble.
const (
	// Cleanup: something could not be freed. Podd tries again.
	Cleanup TroubleKind = "cleanup"
	// Unread: a record cannot be read at present. Podd tries again, and leaves the resources in place until then.
	Unread TroubleKind = "unread"
	// Quarantined: a damaged record was moved to Path, for inspection.
	Quarantined TroubleKind = "quarantined"
)

// Trouble is something that podd has on the machine or on disk and cannot read or free.
type Trouble struct {
	Kind TroubleKind `json:"kind"`
	// What names the kind of resource, ID the pod or container that it belongs to.
	What string `json:"what"`
	ID   string `json:"id,omitempty"`
	// Path is that of a record.
	Path string `json:"path,omitempty"`
	// Since is when it was first noticed, zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	Error string    `json:"error,omitempty"`
}

func (t Trouble) err() error { return fmt.Errorf("%s %s: %s", t.What, t.ID, t.Error) }

// SortTroubles sorts by kind, resource and id.
func SortTroubles(troubles []Trouble) {
	slices.SortStableFunc(troubles, func(a, b Trouble) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.What, b.What), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Path, b.Path))
	})
}
