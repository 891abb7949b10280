package oci

import "context"

type requestKey struct{}

// WithRequest returns a context with the id of the CRI call that caused the work. It is in the log, in the history, and
// in the names of the cgroups and files of commands, so that a process can be traced to its call.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// Request returns the id of the CRI call, "" for work without one.
func Request(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
