package admin

import (
	"net/http"
	"net/http/pprof"
	"time"
)

// maxProfileSeconds bounds how long a CPU profile or a trace is recorded, in seconds.
const maxProfileSeconds = 60

// pprof registers the profiles of Go's runtime, in the formats of net/http/pprof.
func (rt router) pprof() {
	rt.profile("profile", http.HandlerFunc(pprof.Profile))
	rt.profile("trace", http.HandlerFunc(pprof.Trace))
	for _, name := range []string{"allocs", "block", "goroutine", "heap", "mutex", "threadcreate"} {
		rt.profile(name, pprof.Handler(name))
	}
}

// profile registers one, with a bounded time.
func (rt router) profile(name string, h http.Handler) {
	rt.mux.HandleFunc("GET "+version+"/pprof/"+name, func(w http.ResponseWriter, r *http.Request) {
		if _, err := intParam(r, "seconds", 1, maxProfileSeconds); err != nil {
			writeError(w, err)
			return
		}
		setDeadline(w, maxProfileSeconds*time.Second)
		h.ServeHTTP(w, r)
	})
}
