package admin

import (
	"context"
	"net/http"
)

// The number of items in each list of an answer: unless the request has the parameter limit, and at most.
const (
	defaultLimit = 1000
	MaxLimit     = 10000
)

// List is the answer of a resource with many items: the first ones, as many as the request's limit.
type List[T any] struct {
	Items []T `json:"items"`
	// Omitted is the number of items beyond the limit.
	Omitted int `json:"omitted,omitempty"`
}

// first returns the first items of all.
func first[T any](all []T, limit int) List[T] {
	n := min(len(all), limit)
	return List[T]{Items: append([]T{}, all[:n]...), Omitted: len(all) - n} // [] rather than null
}

// lists registers the resources that are a list and nothing else.
func (rt router) lists(n Node) {
	list(rt, "/operations", n.Operations)
	list(rt, "/budgets", n.Budgets)
	list(rt, "/pulls", n.Pulls)
	list(rt, "/sessions", n.Sessions)
}

// list registers a resource with many items, which all returns from memory.
func list[T any](rt router, path string, all func() []T) {
	rt.answer(http.MethodGet, path, timeout, func(_ context.Context, r *http.Request) (any, error) {
		limit, err := intParam(r, "limit", defaultLimit, MaxLimit)
		if err != nil {
			return nil, err
		}
		return first(all(), limit), nil
	})
}
