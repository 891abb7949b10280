package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/cmd/podd/history"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/streaming"
)

// fakeNode has three of everything. Its checks return the findings in turn.
type fakeNode struct {
	level  string
	checks [][]sandbox.Finding
	err    error
	gc     int
	// removed are the ids of the images that were removed.
	removed []string
}

func (*fakeNode) Operations() []operation.Operation {
	return []operation.Operation{{Verb: "RunPodSandbox"}, {Verb: "StopPodSandbox"}, {Verb: "ExecSync"}}
}
func (*fakeNode) Budgets() []budget.Usage { return make([]budget.Usage, 3) }
func (*fakeNode) Pulls() []image.PullProgress {
	return []image.PullProgress{{Ref: "a"}, {Ref: "b"}, {Ref: "c"}}
}
func (*fakeNode) Sessions() []streaming.SessionInfo { return nil }
func (*fakeNode) Usage(context.Context) []PodUsage  { return make([]PodUsage, 3) }
func (n *fakeNode) LogLevel() string                { return n.level }
func (n *fakeNode) SetLogLevel(level string) error {
	if level != "debug" {
		return errors.New("none of the levels")
	}
	n.level = level
	return nil
}

func (n *fakeNode) Check(context.Context) ([]sandbox.Finding, error) {
	if len(n.checks) == 0 {
		return nil, n.err
	}
	found := n.checks[0]
	n.checks = n.checks[1:]
	return found, n.err
}
func (n *fakeNode) GC(context.Context) error { n.gc++; return nil }
func (*fakeNode) VerifyImages(_ context.Context, mark bool) ([]sandbox.Finding, error) {
	return []sandbox.Finding{{Problem: "damaged", Detail: fmt.Sprint(mark)}}, nil
}
func (n *fakeNode) Disk(context.Context) (Disk, error) {
	return Disk{
		DiskImages: n.DiskImages(), Space: Space{Free: 40, Size: 100},
		Containers: List[DiskContainer]{Items: make([]DiskContainer, 3)},
	}, nil
}
func (*fakeNode) DiskImages() DiskImages {
	images := []DiskImage{{ID: "pinned", Pinned: true}, {ID: "used", UsedBy: 1}, {ID: "free"}, {ID: "taken"}}
	return DiskImages{Images: List[DiskImage]{Items: images}, Layers: 7, Unused: 5}
}
func (*fakeNode) Log(container string) (string, error) {
	if container != "c" {
		return "", fmt.Errorf("%w: no container %s", errdefs.ErrNotFound, container)
	}
	return "line", nil
}
func (n *fakeNode) RemoveUnusedLayers() error {
	n.removed = append(n.removed, "unused")
	return nil
}
func (*fakeNode) LoadArchive(_ context.Context, archive io.Reader) ([]LoadedImage, error) {
	n, err := io.Copy(io.Discard, archive)
	return []LoadedImage{{ID: fmt.Sprint(n)}}, err
}

func (*fakeNode) LoadImages(_ context.Context, path string) ([]LoadedImage, error) {
	if path != "/image.tar" {
		return nil, fmt.Errorf("%w: no archive", errdefs.ErrInvalidArgument)
	}
	return []LoadedImage{{ID: "a", Names: []string{"b:v1"}}}, nil
}
func (*fakeNode) ExportImage(_ context.Context, image, path string) error {
	if image != "b:v1" || path != "/image.tar" {
		return errdefs.ErrNotFound
	}
	return nil
}
func (n *fakeNode) RemoveImage(_ context.Context, id string) error {
	if id == "taken" {
		return fmt.Errorf("%w: in use by a new container", errdefs.ErrFailedPrecondition)
	}
	n.removed = append(n.removed, id)
	return nil
}
func (n *fakeNode) Status(_ context.Context, pod string) (Status, error) {
	if pod != "" {
		return Status{}, fmt.Errorf("%w: no pod %s", errdefs.ErrNotFound, pod)
	}
	return Status{Version: "v1", Operations: n.Operations(), Pods: make([]Pod, 4)}, n.err
}

func (n *fakeNode) History(q history.Query) ([]operation.Operation, error) {
	return []operation.Operation{{Verb: q.Verb, Name: q.About, Took: operation.Duration(q.Slower), Done: q.Failed}}, n.err
}

func (n *fakeNode) Reload() (Reload, error) {
	if n.err != nil {
		return Reload{}, fmt.Errorf("%w: broken file", errdefs.ErrFailedPrecondition)
	}
	return Reload{Generation: 2, Changed: []string{"log.level"}}, nil
}

// start serves n until the end of the test and returns the socket.
func start(t *testing.T, n Node, log logrus.FieldLogger) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "admin-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, n, log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v, want nil", err)
		}
	})
	return socket
}

// request makes one request and returns its status and body.
func request(t *testing.T, c *Client, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://podd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestRequests(t *testing.T) {
	query := history.Query{About: "ns/a&b", Verb: "X", Failed: true, Slower: time.Second, Limit: 1}
	log, _ := logtest.NewNullLogger()
	c := NewClient(start(t, &fakeNode{level: "info"}, log))
	for _, r := range []struct {
		method, path, body string
		status             int
		want               string // in the body
	}{
		{"GET", "/v1/status", "", 200, `"version":"v1"`},
		{"GET", "/v1/status?limit=1", "", 200, `"omitted":5`},
		{"GET", "/v1/status?pod=abc", "", 404, `no pod abc`},
		{"GET", "/v1/operations", "", 200, `"verb":"ExecSync"`},
		{"GET", "/v1/operations?limit=2", "", 200, `"omitted":1`},
		{"GET", "/v1/operations?limit=0", "", 400, `limit=\"0\" is not a number from 1 to 10000`},
		{"GET", "/v1/operations?limit=10001", "", 400, "from 1 to 10000"},
		{"GET", "/v1/operations?limit=x", "", 400, "from 1 to 10000"},
		{"GET", "/v1/budgets", "", 200, `"items":[{`},
		{"GET", "/v1/pulls?limit=1", "", 200, `"omitted":2`},
		{"GET", "/v1/sessions", "", 200, `{"items":[]}`},
		{"GET", "/v1/usage?limit=2", "", 200, `"omitted":1`},
		{"GET", "/v1/disk?limit=2", "", 200, `"omitted":2},"layers":7,"unused":5,"free":40,"size":100`},
		{"GET", "/v1/log?container=c", "", 200, `{"text":"line"}`},
		{"GET", "/v1/log?container=d", "", 404, "no container d"},
		{"POST", "/v1/images/load", `{"path":"/image.tar"}`, 200, `{"images":[{"id":"a","names":["b:v1"]}]}`},
		{"POST", "/v1/images/load", `{}`, 400, "no archive"},
		{"POST", "/v1/images/export", `{"image":"b:v1","path":"/image.tar"}`, 200, "{}"},
		{"POST", "/v1/images/export", `{"path":"/image.tar"}`, 400, "image: is empty"},
		{"POST", "/v1/images/export", `{"image":"c","path":"/image.tar"}`, 404, "not found"},
		{"GET", "/v1/images/prune", "", 405, ""},
		{"GET", "/v1" + HistoryPath(query), "", 200,
			`"verb":"X","pod":"","name":"ns/a\u0026b","began":"0001-01-01T00:00:00Z","took":"1s","stages":null,"done":true`},
		{"GET", "/v1/history?failed=maybe", "", 400, "neither true nor false"},
		{"GET", "/v1/history?slower=5", "", 400, "not a duration"},
		{"GET", "/v1/history?limit=-1", "", 400, "from 1 to"},
		{"GET", "/v1/log-level", "", 200, `{"level":"info"}`},
		{"PUT", "/v1/log-level", `{"level":"debug"}`, 200, `{"level":"debug"}`},
		{"PUT", "/v1/log-level", `{"level":"loud"}`, 400, "none of the levels"},
		{"PUT", "/v1/log-level", `{"levle":"debug"}`, 400, `unknown field \"levle\"`},
		{"PUT", "/v1/log-level", `{`, 400, "body"},
		{"PUT", "/v1/log-level", `{"level":"` + strings.Repeat("x", maxRequest) + `"}`, 400, "too large"},
		{"POST", "/v1/log-level", `{}`, 405, ""},
		{"POST", "/v1/check", `{"images":true}`, 200, `"detail":"false"`},
		{"POST", "/v1/reload", "", 200, `{"generation":2,"changed":["log.level"]}`},
		{"GET", "/v1/pprof/heap", "", 200, ""},
		{"GET", "/v1/pprof/goroutine?debug=2", "", 200, "goroutine"},
		{"GET", "/v1/pprof/profile?seconds=3600", "", 400, "from 1 to 60"},
		{"GET", "/v1/pprof/cmdline", "", 404, ""},
		{"GET", "/v2/status", "", 404, ""},
		{"GET", "/", "", 404, ""},
	} {
		status, body := request(t, c, r.method, r.path, r.body)
		if status != r.status || !strings.Contains(body, r.want) {
			t.Errorf("%s %s %.40s = %d %s, want %d with %q", r.method, r.path, r.body, status, body, r.status, r.want)
		}
	}
}

// TestClient: the client decodes answers and returns the daemon's errors with their kind.
func TestClient(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	c := NewClient(start(t, &fakeNode{}, log))
	var s Status
	if err := c.Get(t.Context(), "/status", &s); err != nil || s.Version != "v1" || len(s.Pods) != 4 {
		t.Errorf("Get(/status) = %+v, %v, want version v1 and 4 pods", s, err)
	}
	err := c.Get(t.Context(), "/status?pod=abc", &s)
	if !errdefs.IsNotFound(err) || err.Error() != "not found: no pod abc" {
		t.Errorf("Get(/status?pod=abc) = %v, want the daemon's error, not found", err)
	}
	if err := c.Get(t.Context(), "/nonsense", &s); !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "404") {
		t.Errorf("Get(/nonsense) = %v, want not found and the status", err)
	}
	absent := NewClient("/nonexistent/admin.sock")
	err = absent.Get(t.Context(), "/status", &s)
	if err == nil || !strings.Contains(err.Error(), "is podd running?") || absent.Running() || !c.Running() {
		t.Errorf("without a daemon: %v, running %t; want a hint", err, absent.Running())
	}
}

// TestPrune: neither pinned images nor those that containers use are removed; a dry run removes none.
func TestPrune(t *testing.T) {
	n := &fakeNode{}
	log, _ := logtest.NewNullLogger()
	c := NewClient(start(t, n, log))
	for _, test := range []struct {
		dry                       bool
		images, removed, failures []string
	}{
		{dry: true, images: []string{"free", "taken"}},
		{images: []string{"free"}, removed: []string{"free", "unused"}, failures: []string{
			"failed precondition: in use by a new container"}},
	} {
		var p Pruned
		if err := c.Do(t.Context(), http.MethodPost, "/images/prune", PruneRequest{DryRun: test.dry}, &p); err != nil {
			t.Fatal(err)
		}
		var images []string
		for _, i := range p.Images {
			images = append(images, i.ID)
		}
		if !slices.Equal(images, test.images) || !slices.Equal(n.removed, test.removed) ||
			!slices.Equal(p.Failed, test.failures) {
			t.Errorf("prune, dry %t = %q, removed %q, failed %q, want %+v", test.dry, images, n.removed, p.Failed, test)
		}
	}
}

// TestCheckConfirms: what only one of two checks finds was on its way out.
func TestCheckConfirms(t *testing.T) {
	a, b := sandbox.Finding{Problem: "leak", ID: "a"}, sandbox.Finding{Problem: "leak", ID: "b"}
	n := &fakeNode{checks: [][]sandbox.Finding{{a, b}, {b}}}
	log, lines := logtest.NewNullLogger()
	c := NewClient(start(t, n, log))
	var found Findings
	err := c.Do(t.Context(), http.MethodPost, "/check", CheckRequest{Repair: true}, &found)
	if err != nil || len(found.Items) != 1 || found.Items[0] != b || n.gc != 1 {
		t.Errorf("check = %+v, %v, %d collections; want finding b and one collection", found, err, n.gc)
	}
	last := lines.LastEntry()
	if last == nil || last.Message != "admin request done" || last.Data["path"] != "/v1/check" {
		t.Errorf("last log entry = %+v, want that of the request", last)
	}
	n.err = errdefs.ErrUnavailable
	if err := c.Do(t.Context(), http.MethodPost, "/check", nil, &found); !errdefs.IsUnavailable(err) {
		t.Errorf("check of a node that fails = %v, want unavailable", err)
	}
}

// TestOtherUsers: a connection of another user is closed, even if the mode of the socket lets the user connect.
func TestOtherUsers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	log, lines := logtest.NewNullLogger()
	socket := start(t, &fakeNode{}, log)
	for path, mode := range map[string]os.FileMode{filepath.Dir(socket): 0o755, socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	answer := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			answer <- nil
			return
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			answer <- fmt.Errorf("dial: %w", err)
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		_, _ = io.WriteString(conn, "GET /v1/status HTTP/1.0\r\n\r\n")
		text, _ := io.ReadAll(conn) // EOF or reset
		answer <- fmt.Errorf("answer %q", text)
	}()
	if err := <-answer; err == nil || err.Error() != `answer ""` {
		t.Errorf("another user got %v, want no answer", err)
	}
	if e := lines.LastEntry(); e == nil || fmt.Sprint(e.Data["uid"]) != "65534" {
		t.Errorf("log = %+v, want the refused uid", e)
	}
	if status, _ := request(t, NewClient(socket), "GET", "/v1/status", ""); status != http.StatusOK {
		t.Errorf("root gets %d, want 200", status)
	}
}

// TestAnswersAreBounded: no answer has more items in a list than MaxLimit.
func TestAnswersAreBounded(t *testing.T) {
	n := &fakeNode{checks: [][]sandbox.Finding{many(MaxLimit + 5), many(MaxLimit + 5)}}
	log, _ := logtest.NewNullLogger()
	_, body := request(t, NewClient(start(t, n, log)), "POST", "/v1/check", "")
	var found Findings
	if err := json.Unmarshal([]byte(body), &found); err != nil || len(found.Items) != MaxLimit || found.Omitted != 5 {
		t.Errorf("%d findings, %d omitted (%v), want %d and 5", len(found.Items), found.Omitted, err, MaxLimit)
	}
}

func many(n int) (out []sandbox.Finding) {
	for i := range n {
		out = append(out, sandbox.Finding{ID: fmt.Sprint(i)})
	}
	return out
}
