package images

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// splitTag splits repository:tag.
func splitTag(name string) (repo, tag string, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// serve records the request, removes the prefix of a fault from the path, and answers with that fault.
func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.requests = append(r.requests, req.Method+" "+req.URL.Path)
	r.mu.Unlock()

	path, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	fault, rest, _ := strings.Cut(path, "/")
	answer := r.fault(fault)
	if !ok || answer == nil {
		r.handler.ServeHTTP(w, req)
		return
	}
	clean := req.Clone(req.Context())
	clean.URL.Path = "/v2/" + rest
	answer(w, clean)
}

// fault returns the handler for repositories with the prefix; nil if the prefix is not a fault.
func (r *Registry) fault(prefix string) http.HandlerFunc {
	switch prefix {
	case "slow":
		return r.blobsBy(r.slow)
	case "stalled":
		return r.blobsBy(r.stall)
	case "trickle":
		return r.blobsBy(r.trickle)
	case "corrupt":
		return r.blobsBy(corrupt)
	case "truncated":
		return r.blobsBy(truncate)
	case "malformed":
		return r.manifestsBy(func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"schemaVersion": 2, "layers": [`)
		})
	case "broken":
		return func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `{"errors":[{"code":"UNKNOWN","message":"disk on fire"}]}`, http.StatusInternalServerError)
		}
	case "lying":
		return r.lie
	default:
		return nil
	}
}

func (r *Registry) basic(w http.ResponseWriter, req *http.Request) {
	if user, password, ok := req.BasicAuth(); !ok || user != User || password != Password {
		w.Header().Set("WWW-Authenticate", `Basic realm="podd tests"`)
		denied(w)
		return
	}
	r.serve(w, req)
}

func (r *Registry) bearer(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Authorization") != "Bearer "+Token {
		w.Header().Set("WWW-Authenticate", `Bearer realm="http://`+r.Addr+`/token",service="podd tests"`)
		denied(w)
		return
	}
	r.serve(w, req)
}

func denied(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`)
}

// blobsBy passes the content of layers and configs to send, and serves everything else without faults.
func (r *Registry) blobsBy(send func(http.ResponseWriter, *http.Request, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/blobs/") {
			r.handler.ServeHTTP(w, req)
			return
		}
		rec := &recorder{header: w.Header(), code: http.StatusOK}
		r.handler.ServeHTTP(rec, req)
		if rec.code == http.StatusOK {
			w.Header().Set("Content-Length", strconv.Itoa(rec.body.Len()))
		}
		w.WriteHeader(rec.code)
		send(w, req, rec.body.Bytes())
	}
}

// manifestsBy answers requests for manifests with write.
func (r *Registry) manifestsBy(write func(http.ResponseWriter)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, "/manifests/") {
			r.handler.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		write(w)
	}
}

// lie answers all requests for manifests with that of another image.
func (r *Registry) lie(w http.ResponseWriter, req *http.Request) {
	if strings.Contains(req.URL.Path, "/manifests/") {
		req.URL.Path = "/v2/pause/manifests/3.10"
	}
	r.handler.ServeHTTP(w, req)
}

// slow sends in twenty pieces with a pause after each.
func (r *Registry) slow(w http.ResponseWriter, req *http.Request, data []byte) {
	for piece := len(data)/20 + 1; len(data) > 0; data = data[min(piece, len(data)):] {
		if _, err := w.Write(data[:min(piece, len(data))]); err != nil {
			return
		}
		flush(w)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-req.Context().Done():
			return
		}
	}
}

// trickle sends ten bytes every 100 ms, and the rest after Release.
func (r *Registry) trickle(w http.ResponseWriter, req *http.Request, data []byte) {
	for len(data) > 0 {
		piece := min(10, len(data))
		select {
		case <-r.release:
			piece = len(data)
		case <-time.After(100 * time.Millisecond):
		case <-req.Context().Done():
			return
		}
		if _, err := w.Write(data[:piece]); err != nil {
			return
		}
		flush(w)
		data = data[piece:]
	}
}

// stall sends one half, and the other half after Release.
func (r *Registry) stall(w http.ResponseWriter, req *http.Request, data []byte) {
	if _, err := w.Write(data[:len(data)/2]); err != nil {
		return
	}
	flush(w)
	select {
	case <-r.release:
		_, _ = w.Write(data[len(data)/2:]) // fails if the client has disconnected
	case <-req.Context().Done():
	}
}

func corrupt(w http.ResponseWriter, _ *http.Request, data []byte) {
	if len(data) > 0 {
		data[len(data)/2] ^= 1
	}
	_, _ = w.Write(data)
}

// truncate closes the connection after one half of the announced length.
func truncate(w http.ResponseWriter, _ *http.Request, data []byte) {
	_, _ = w.Write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }
