package admin

import (
	"context"
	"net/http"
	"time"
)

// reloadTimeout bounds a reload: a CNI plugin's STATUS is ended first, and the image store's locks may be held.
const reloadTimeout = time.Minute

// Reload is the answer to POST /reload that succeeded. One that is refused, with status 412, changes nothing.
type Reload struct {
	// Generation is the number of the configuration in force, 1 at the start of podd.
	Generation int `json:"generation"`
	// Changed are the keys whose values changed.
	Changed []string `json:"changed"`
}

// Configuration is the state of the configuration, in Status.
type Configuration struct {
	Generation int       `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	// Error is why the last reload was refused; empty if it was not.
	Error string `json:"error,omitempty"`
}

func (rt router) reload(n Node) {
	rt.answer(http.MethodPost, "/reload", reloadTimeout, func(context.Context, *http.Request) (any, error) {
		return n.Reload()
	})
}
