package budget

// Reserved is a budget of which each owner has a part for itself: ordinary owners find room when others have used the
// shared part up.
type Reserved struct {
	own    *Pool
	shared *Pool
}

// Try returns a grant that holds n of the owner's part or, if that has not enough, of the shared one, or a
// *RefusedError of the latter.
func (r Reserved) Try(owner string, n int64) (*Grant, error) {
	if g, err := r.own.Try(owner, n); err == nil {
		return g, nil
	}
	return r.shared.Try(owner, n)
}
