package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/sirupsen/logrus"
)

// version is the first part of every path. A field may be added to an answer; anything else is a new version.
const version = "/v1"

// router registers the resources.
type router struct {
	mux *http.ServeMux
	log logrus.FieldLogger
}

// Error is the answer to a request that failed. The HTTP status is that of the kind of error, see errhttp.
type Error struct {
	Error string `json:"error"`
}

// answerFunc handles a request. Its result is encoded as JSON; nil as {}.
type answerFunc func(ctx context.Context, r *http.Request) (any, error)

// answer registers f for a method and a path of this version, "GET /status", with a time limit.
func (rt router) answer(method, path string, limit time.Duration, f answerFunc) {
	rt.answerUpTo(maxRequest, method, path, limit, f)
}

// answerUpTo is answer for requests with a body of at most most bytes.
func (rt router) answerUpTo(most int64, method, path string, limit time.Duration, f answerFunc) {
	rt.mux.HandleFunc(method+" "+version+path, func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		ctx, cancel := context.WithTimeoutCause(r.Context(), limit,
			fmt.Errorf("%w: no answer within %v", errdefs.ErrUnavailable, limit))
		defer cancel()
		setDeadline(w, limit)
		r.Body = http.MaxBytesReader(w, r.Body, most)
		v, err := f(ctx, r)
		if method != http.MethodGet {
			rt.logChange(r, time.Since(start), err)
		}
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// logChange logs a request that may have changed something.
func (rt router) logChange(r *http.Request, took time.Duration, err error) {
	log := rt.log.WithFields(logrus.Fields{
		"method": r.Method, "path": r.URL.Path, "duration": took.Round(time.Microsecond).String(),
	})
	if err != nil {
		log.WithError(err).Warn("admin request failed")
		return
	}
	log.Info("admin request done")
}

// setDeadline ends the connection if its client neither sends the request nor reads the answer in time.
func setDeadline(w http.ResponseWriter, limit time.Duration) {
	c, deadline := http.NewResponseController(w), time.Now().Add(limit+timeout)
	_ = c.SetReadDeadline(deadline) // every connection has deadlines
	_ = c.SetWriteDeadline(deadline)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if v == nil {
		v = struct{}{}
	}
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

func writeError(w http.ResponseWriter, err error) {
	writeJSON(w, errhttp.ToHTTP(err), Error{Error: err.Error()})
}

// decode reads the JSON of a request. An unknown field is an error: it may be of a newer version.
func decode(r *http.Request, into any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && err != io.EOF { // an empty body has no fields
		return fmt.Errorf("%w: body: %w", errdefs.ErrInvalidArgument, err)
	}
	return nil
}

// intParam returns a number in the query of the request, between 1 and most, or the default.
func intParam(r *http.Request, name string, standard, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%w: %s=%q is not a number from 1 to %d", errdefs.ErrInvalidArgument, name, text, most)
	}
	return n, nil
}
