package admin

import (
	"context"
	"net/http"
)

// Log is the answer to GET /log: the last lines of the log of the container that the parameter container names.
type Log struct {
	// Text has the lines as they are on disk: time, stream, tag and text.
	Text string `json:"text"`
}

func (rt router) containerLog(n Node) {
	rt.answer(http.MethodGet, "/log", timeout, func(_ context.Context, r *http.Request) (any, error) {
		text, err := n.Log(r.URL.Query().Get("container"))
		return Log{text}, err
	})
}
