package cadvisor

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var id = strings.Repeat("0123456789abcdef", 4)

type fakeNode struct{}

func (fakeNode) Info() Info { return Info{StorageDriver: "overlay", StorageRoot: "/r"} }

func (fakeNode) Container(asked string) (Container, bool) {
	return Container{Name: "web", Pid: 7, Labels: map[string]string{"a": "b"}}, asked == id
}

// serve starts a server on a socket, which ends with the test, and returns a client of it.
func serve(t *testing.T) *http.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, fakeNode{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func TestAnswers(t *testing.T) {
	c := serve(t)
	for _, test := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/info", 200}, {"GET", "/containers/" + id, 200},
		{"GET", "/containers/" + strings.ToUpper(id), 404}, {"GET", "/containers/" + id[:63], 404},
		{"GET", "/containers/" + id + "/", 404}, {"GET", "/containers/" + strings.Repeat("f", 64), 404},
		{"GET", "/containers/", 404}, {"GET", "//info", 404}, {"GET", "/containers/../info", 404}, {"GET", "/", 404},
		{"HEAD", "/info", 405}, {"POST", "/info", 405}, {"PUT", "/containers/" + id, 405},
		{"DELETE", "/containers/" + id, 405},
	} {
		r, err := http.NewRequestWithContext(t.Context(), test.method, "http://podd"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("%s %s = %d, want %d", test.method, test.path, resp.StatusCode, test.want)
		}
	}
	resp, err := c.Get("http://podd/containers/" + id)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got Container
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || got.Name != "web" || got.Pid != 7 {
		t.Errorf("container = %+v, %v, want that of the node", got, err)
	}
}

// TestManyConnections: connections that send nothing are bounded, and those within the bound are answered.
func TestManyConnections(t *testing.T) {
	c := serve(t)
	transport := c.Transport.(*http.Transport)
	for range maxConnections - 1 {
		conn, err := transport.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	resp, err := c.Get("http://podd/info")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func TestConfig(t *testing.T) {
	for socket, ok := range map[string]bool{
		"": true, Socket: true, "crio.sock": false, "/run/../x": false, "/": false, "/run/x\n": false,
		"/" + strings.Repeat("x", 107): false,
	} {
		var wrong []string
		Config{Socket: socket}.Validate(func(key string, _ error) { wrong = append(wrong, key) })
		if (len(wrong) == 0) != ok {
			t.Errorf("Validate(%q) reports %q, want valid = %v", socket, wrong, ok)
		}
	}
}

func FuzzPath(f *testing.F) {
	for _, path := range []string{"/info", "/containers/" + id, "/containers/%2e%2e/info", "//", "/containers/\x00"} {
		f.Add("GET", path)
	}
	f.Add("POST", "/info")
	f.Fuzz(func(t *testing.T, method, path string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Method, r.URL = method, &url.URL{Path: path}
		w := httptest.NewRecorder()
		handler{fakeNode{}}.ServeHTTP(w, r)
		body, err := io.ReadAll(w.Result().Body)
		if err != nil || !slices.Contains([]int{200, 404, 405}, w.Code) || len(body) > 1<<10 {
			t.Errorf("%s %q = %d with %d bytes, %v", method, path, w.Code, len(body), err)
		}
		if known := path == "/info" || path == "/containers/"+id; (w.Code == 200) != (known && method == "GET") {
			t.Errorf("%s %q = %d", method, path, w.Code)
		}
	})
}
