package ui

import (
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/containerd/errdefs/pkg/errhttp"
)

// page has the files of the page. They are in the program's file, and in memory only while they are read.
//
//go:embed page
var page embed.FS

// policy lets the page load its own scripts and styles and read its own server, and nothing else. Trusted Types make
// the browser refuse to parse text as HTML, even if a script asked for it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// resources are the parts of the admin API that the page reads, with the parameters that are passed on.
var resources = map[string][]string{
	"status":  {"pod", "limit"},
	"history": {"about", "verb", "failed", "limit"},
	"disk":    {"limit"},
	"usage":   {"limit"},
	"log":     {"container"},
}

// routes returns the handler of all requests. The files of the page are for everybody: they are published with podd.
// The node's activity needs the session's key.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the path is a constant
	}
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("POST /login", s.login)
	for name, parameters := range resources {
		mux.HandleFunc("GET /api/"+name, func(w http.ResponseWriter, r *http.Request) { s.forward(w, r, name, parameters) })
	}
	return guard(mux)
}

// guard sets the headers of every answer, and refuses requests under names that are not this machine's own: a page of
// another site whose name an attacker makes point to 127.0.0.1 (DNS rebinding) would be of the same origin.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		if !ownHost(r.Host) {
			http.Error(w, "This page is served as localhost or 127.0.0.1 only.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether the header Host names the loopback interface. The port may be another one: that of ssh -L.
func ownHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil { // port 80 is left out
		host = hostport
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// login exchanges the token for the session's key.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var sent struct{ Token string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLogin)).Decode(&sent); err != nil {
		writeJSON(w, http.StatusBadRequest, failure{"the body is not JSON with a token"})
		return
	}
	key, ok := s.session.exchange(sent.Token)
	if !ok {
		writeJSON(w, http.StatusForbidden, failure{"the address was used before: run podd ui again"})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"key": key})
}

// forward passes on the daemon's answer.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, name string, parameters []string) {
	if !s.session.allows(r) {
		writeJSON(w, http.StatusUnauthorized, failure{"this window is not logged in: run podd ui, and open the address " +
			"that it prints"})
		return
	}
	query := r.URL.Query()
	for parameter := range query {
		if !slices.Contains(parameters, parameter) {
			query.Del(parameter)
		}
	}
	answer, err := s.api.Open(r.Context(), http.MethodGet, "/"+name+"?"+query.Encode(), nil)
	if err != nil {
		writeJSON(w, errhttp.ToHTTP(err), failure{err.Error()})
		return
	}
	defer answer.Close()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(w, answer) // the browser, or the daemon, is gone
}

// failure is the answer to a request that failed.
type failure struct {
	Error string `json:"error"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the browser is gone
}
