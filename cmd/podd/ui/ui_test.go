package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// fakeAPI answers with the path that it was asked for.
type fakeAPI struct{ err error }

func (a fakeAPI) Open(_ context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	if a.err != nil {
		return nil, a.err
	}
	if method != http.MethodGet || body != nil {
		return nil, fmt.Errorf("%s with a body (%v), want a GET", method, body)
	}
	return io.NopCloser(strings.NewReader(`{"asked":"` + path + `"}`)), nil
}

// ask makes a request to a server of the page.
func ask(s *Server, method, target, key, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:1234"+target, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	w := httptest.NewRecorder()
	s.routes().ServeHTTP(w, r)
	return w
}

// logIn exchanges a token and returns the key, "" if it was refused.
func logIn(t *testing.T, s *Server, token string) string {
	t.Helper()
	var answer struct{ Key string }
	w := ask(s, "POST", "/login", "", `{"token":"`+token+`"}`)
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("login answers %q: %v", w.Body, err)
	}
	if (w.Code == http.StatusOK) != (answer.Key != "") {
		t.Errorf("login = %d with the key %q, want a key or a refusal", w.Code, answer.Key)
	}
	return answer.Key
}

func TestLogin(t *testing.T) {
	s, token := New(fakeAPI{})
	for _, wrong := range []string{"", "x", token[1:], strings.ToLower(token), token + "x"} {
		if key := logIn(t, s, wrong); key != "" {
			t.Errorf("the token %q is accepted, want %q only", wrong, token)
		}
	}
	key := logIn(t, s, token)
	if key == "" || key == token {
		t.Errorf("key = %q, want one that is not the token", key)
	}
	if again := logIn(t, s, token); again != "" {
		t.Error("the token is accepted twice, want once")
	}
	if empty := logIn(t, s, ""); empty != "" {
		t.Error("the empty token is accepted after the first login")
	}
	if other, _ := New(fakeAPI{}); other.session.key == key || other.session.token == token {
		t.Error("two servers have the same secrets")
	}
	for body, status := range map[string]int{
		"": 400, "x": 400, `{"token":"` + strings.Repeat("x", maxLogin) + `"}`: 400, `{}`: 403, `null`: 403,
	} {
		if w := ask(s, "POST", "/login", "", body); w.Code != status {
			t.Errorf("login with the body %.20q = %d, want %d", body, w.Code, status)
		}
	}
}

func TestRequests(t *testing.T) {
	s, token := New(fakeAPI{})
	key := logIn(t, s, token)
	for _, r := range []struct {
		method, target, key string
		status              int
		want                string // in the body
	}{
		{"GET", "/", "", 200, `<script type="module" src="main.js">`},
		{"GET", "/main.js", "", 200, "import"},
		{"GET", "/style.css", "", 200, "color-scheme"},
		{"GET", "/page/main.js", "", 404, ""},
		{"GET", "/routes.go", "", 404, ""},
		{"POST", "/", "", 405, ""},
		{"GET", "/login", "", 404, ""},
		{"GET", "/api/status", "", 401, "not logged in"},
		{"GET", "/api/status", "x" + key, 401, "not logged in"},
		{"GET", "/api/status", key[:len(key)-1], 401, "not logged in"},
		{"GET", "/api/status", token, 401, "not logged in"},
		{"GET", "/api/status?limit=5&pod=a%26b", key, 200, `"asked":"/status?limit=5&pod=a%26b"`},
		{"GET", "/api/history?failed=true&verb=X&slower=1s", key, 200, `"asked":"/history?failed=true&verb=X"`},
		{"GET", "/api/disk", key, 200, `"asked":"/disk?"`},
		{"GET", "/api/pprof/heap", key, 404, ""},
		{"GET", "/api/log-level", key, 404, ""},
		{"PUT", "/api/status", key, 405, ""},
		{"POST", "/api/reload", key, 405, ""},
	} {
		w := ask(s, r.method, r.target, r.key, "")
		if w.Code != r.status || !strings.Contains(w.Body.String(), r.want) {
			t.Errorf("%s %s = %d %.80q, want %d with %q", r.method, r.target, w.Code, w.Body, r.status, r.want)
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'; ") {
			t.Errorf("%s %s has the policy %q, want default-src 'none'", r.method, r.target, got)
		}
	}
}

// TestDaemonFails: the page gets the daemon's error, with a status of the same kind.
func TestDaemonFails(t *testing.T) {
	s, token := New(fakeAPI{fmt.Errorf("%w: no pod x", errdefs.ErrNotFound)})
	w := ask(s, "GET", "/api/status?pod=x", logIn(t, s, token), "")
	if w.Code != 404 || !strings.Contains(w.Body.String(), "no pod x") {
		t.Errorf("answer = %d %q, want 404 and the daemon's error", w.Code, w.Body)
	}
}

// TestHosts: a name that somebody else's DNS made point to this machine is refused, before anything is served.
func TestHosts(t *testing.T) {
	s, token := New(fakeAPI{})
	key := logIn(t, s, token)
	for host, want := range map[string]int{
		"127.0.0.1:1234": 200, "127.0.0.1": 200, "localhost:8000": 200, "localhost": 200, "[::1]:80": 200, "127.9.9.9:1": 200,
		"evil.example:1234": 421, "127.0.0.1.evil.example:1234": 421, "localhost.evil.example": 421, "": 421, "10.0.0.1": 421,
		"0.0.0.0:1234": 421, "[::]:1": 421, "localhost:1:2": 421, "[::1": 421, "evil.example@127.0.0.1": 421,
	} {
		for _, path := range []string{"/", "/api/status"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+key)
			w := httptest.NewRecorder()
			s.routes().ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("GET %s of host %q = %d, want %d", path, host, w.Code, want)
			}
		}
	}
}

func TestCheckAddress(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:8000": true, "127.1.2.3:80": true,
		"0.0.0.0:80": false, ":80": false, "10.0.0.1:80": false, "localhost:80": false, "127.0.0.1": false, "": false,
	} {
		if err := CheckAddress(address); (err == nil) != ok {
			t.Errorf("CheckAddress(%q) = %v, want success %t", address, err, ok)
		}
	}
}

// TestSlowClients: connections of other local users that send nothing are closed, and do not keep the page from being
// served for longer than that.
func TestSlowClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as a request may")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s, _ := New(fakeAPI{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	for range maxConnections + 10 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	client := http.Client{Timeout: 3 * headerTimeout}
	start := time.Now()
	resp, err := client.Get("http://" + l.Addr().String() + "/")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET behind idle connections = %v, %v, want 200", resp, err)
	}
	resp.Body.Close()
	if took := time.Since(start); took > 2*headerTimeout {
		t.Errorf("served after %v, want soon after %v", took, headerTimeout)
	}
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v, want nil at the end of its context", err)
	}
}

// TestFiles: the page is small, has no script or style in its HTML, and names no other site.
func TestFiles(t *testing.T) {
	const limit = 200 << 10
	size := 0
	err := fs.WalkDir(page, "page", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(page, path)
		size += len(text)
		plain := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{
			"http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "javascript:",
			"style=", "onclick=\"",
		} {
			if strings.Contains(plain, bad) {
				t.Errorf("%s contains %q, want none", path, bad)
			}
		}
		return err
	})
	if err != nil || size == 0 || size > limit {
		t.Errorf("the page has %d bytes, %v, want at most %d", size, err, limit)
	}
}
