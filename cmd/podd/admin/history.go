package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/sandbox/operation"
)

// History is the answer to GET /history: operations that have ended, the newest first.
type History struct {
	Items []operation.Operation `json:"items"`
	// Damage says which part of the history cannot be read.
	Damage string `json:"damage,omitempty"`
}

func (rt router) history(n Node) {
	rt.answer(http.MethodGet, "/history", timeout, func(_ context.Context, r *http.Request) (any, error) {
		q, err := historyQuery(r)
		if err != nil {
			return nil, err
		}
		return NewHistory(n.History(q)), nil
	})
}

// NewHistory returns the answer for what could be read, and the error of what could not.
func NewHistory(found []operation.Operation, err error) History {
	answer := History{Items: append([]operation.Operation{}, found...)}
	if err != nil {
		answer.Damage = err.Error()
	}
	return answer
}

// historyQuery reads the parameters about, verb, failed, slower and limit.
func historyQuery(r *http.Request) (history.Query, error) {
	v := r.URL.Query()
	q := history.Query{About: v.Get("about"), Verb: v.Get("verb")}
	var err error
	if text := v.Get("failed"); text != "" {
		if q.Failed, err = strconv.ParseBool(text); err != nil {
			return q, fmt.Errorf("%w: failed=%q is neither true nor false", errdefs.ErrInvalidArgument, text)
		}
	}
	if text := v.Get("slower"); text != "" {
		if q.Slower, err = time.ParseDuration(text); err != nil {
			return q, fmt.Errorf("%w: slower=%q is not a duration like 1.5s", errdefs.ErrInvalidArgument, text)
		}
	}
	q.Limit, err = intParam(r, "limit", defaultLimit, MaxLimit)
	return q, err
}

// HistoryPath returns the path of a query, for Client.
func HistoryPath(q history.Query) string {
	return "/history?" + url.Values{
		"about": {q.About}, "verb": {q.Verb}, "failed": {strconv.FormatBool(q.Failed)}, "slower": {q.Slower.String()},
		"limit": {strconv.Itoa(q.Limit)},
	}.Encode()
}
