package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"google.golang.org/grpc/codes"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/image"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/budget"
	"github.com/podd-project/podd/sandbox/garbage"
	"github.com/podd-project/podd/sandbox/operation"
	"github.com/podd-project/podd/server"
	"github.com/podd-project/podd/streaming"
)

// node is a node with two pods, one of which is in trouble.
func node() Node {
	return Node{
		Status: admin.Status{
			Pods: []admin.Pod{
				{State: "ready", Containers: []admin.Container{{State: "running", Name: "secretname"}}},
				{State: "ready"}, {State: "stopping", Name: "ns/secretname"},
			},
			Pulls:      make([]image.PullProgress, 1),
			Operations: []operation.Operation{{Verb: "StopPodSandbox", Pod: "secretid", Name: "ns/secretname"}},
			Problems:   []admin.Problem{{Kind: "oom", Name: "secretname"}, {Kind: "oom"}},
			Troubles: []sandbox.Trouble{
				{Kind: garbage.Cleanup, ID: "secretid"}, {Kind: garbage.Quarantined, ID: "secretid"},
				{Kind: garbage.Quarantined, Path: "/other"},
			},
			Conditions:    []admin.Condition{{Type: "RuntimeReady", Ready: true}, {Type: "NetworkReady"}},
			Configuration: admin.Configuration{Generation: 7},
			Budgets:       []budget.Usage{{Name: "exec output", Limit: 9, InUse: 4, Refused: 2}},
			Sessions:      []streaming.SessionInfo{{Kind: "exec", Container: "secretid"}},
			Disk:          admin.Space{Free: 5, Size: 10},
			NRI:           pluginStatus(),
		},
		Images:   3,
		Handlers: []sandbox.Handler{{Name: "runc"}, {Name: "kata", Err: errors.New("no such file")}},
		Spans:    map[string]uint64{"sent": 7, "dropped": 2},
	}
}

// TestContrib: the alerts and the dashboard in contrib use metrics and labels that exist.
func TestContrib(t *testing.T) {
	_, body := get(t, serve(t, seen()), Path)
	types := map[string]bool{}
	for line := range strings.SplitSeq(body, "\n") {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(name, " ")
			types[name] = true
			if kind == "histogram" {
				types[name+"_bucket"], types[name+"_count"], types[name+"_sum"] = true, true, true
			}
		}
	}
	names := regexp.MustCompile(`\b(?:podd|go|process)_[a-z_]+\b`)
	for _, file := range []string{"rules.yaml", "rules_test.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join("../../../contrib/prometheus", file))
		if err != nil {
			t.Fatal(err)
		}
		found := names.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s uses no metric", file)
		}
		for _, name := range found {
			if !types[name] {
				t.Errorf("%s uses %s, which podd does not have", file, name)
			}
		}
	}
}

// seen is metrics that have seen something of everything.
func seen() *Metrics {
	m := New("v1")
	m.Watch(node)
	m.ObserveOperation(context.Background(), operation.Operation{
		Verb: "RunPodSandbox", Pod: "secretid", Name: "ns/secretname", UID: "secretuid", Handler: "runc",
		Outcome: operation.OutcomeOK, Took: operation.Duration(30 * time.Millisecond),
		Stages: []operation.Stage{{Name: "record", Took: operation.Duration(time.Millisecond)},
			{Name: "network", Took: operation.Duration(25 * time.Millisecond)}},
	})
	m.ObserveOperation(context.Background(), operation.Operation{
		Verb: "RunPodSandbox", Handler: "runc", Outcome: operation.OutcomeTimeout, Error: "secrettext",
		Took:   operation.Duration(2 * time.Minute),
		Stages: []operation.Stage{{Name: "network", Took: operation.Duration(2 * time.Minute)}},
	})
	m.ObserveExit("OOMKilled")
	m.ObserveCall(server.Call{Method: "RunPodSandbox", Code: codes.DeadlineExceeded, Duration: 2 * time.Minute})
	return m
}

// serve serves m on a socket until the test's end, and returns a client of it.
func serve(t *testing.T, m *Metrics) *http.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(t.Output())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, l, log) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := net.Dial("unix", path); err == nil {
			t.Error("it is still served")
		}
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

func get(t *testing.T, c *http.Client, path string) (status int, body string) {
	t.Helper()
	resp, err := c.Get("http://podd" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestScrape(t *testing.T) {
	c := serve(t, seen())
	status, body := get(t, c, Path)
	if status != http.StatusOK {
		t.Fatalf("%d: %s", status, body)
	}
	const stage = `podd_operation_stage_duration_seconds`
	const succeeded, timedOut = `handler="runc",operation="RunPodSandbox",outcome="ok"`,
		`handler="runc",operation="RunPodSandbox",outcome="timeout"`
	for _, want := range []string{
		`podd_build_info{version="v1"} 1`,
		`podd_operation_duration_seconds_count{` + succeeded + `} 1`,
		`podd_operation_duration_seconds_count{` + timedOut + `} 1`,
		stage + `_sum{` + succeeded + `,stage="network"} 0.025`,
		stage + `_bucket{` + succeeded + `,stage="record",le="0.001"} 1`,
		stage + `_bucket{` + succeeded + `,stage="network",le="0.016"} 0`,
		stage + `_bucket{` + succeeded + `,stage="network",le="0.032"} 1`,
		stage + `_bucket{` + timedOut + `,stage="network",le="60"} 0`,
		`podd_rpc_duration_seconds_count{code="DeadlineExceeded",method="RunPodSandbox"} 1`,
		`podd_pods{state="ready"} 2`, `podd_pods{state="stopping"} 1`,
		`podd_pods{state="creating"} 0`, `podd_pods{state="notready"} 0`,
		`podd_containers{state="running"} 1`, `podd_containers{state="exited"} 0`,
		`podd_images 3`, `podd_image_pulls_in_progress 1`, `podd_operations_in_progress{operation="StopPodSandbox"} 1`,
		`podd_problems{kind="oom"} 2`, `podd_problems{kind="pull"} 0`,
		`podd_pending_cleanups 1`, `podd_unread_records 0`, `podd_quarantined_records 2`,
		`podd_runtime_handler_ready{handler="runc"} 1`, `podd_runtime_handler_ready{handler="kata"} 0`,
		`podd_network_ready 0`, `podd_config_generation 7`, `podd_config_last_reload_successful 1`,
		`podd_budget_in_use{budget="exec output"} 4`, `podd_budget_limit{budget="exec output"} 9`,
		`podd_budget_refused_total{budget="exec output"} 2`,
		`podd_sessions{kind="exec"} 1`, `podd_sessions{kind="attach"} 0`, `podd_container_exits_total{reason="OOMKilled"} 1`,
		`podd_container_exits_total{reason="Error"} 0`,
		`podd_filesystem_free_bytes 5`, `podd_filesystem_size_bytes 10`,
		"process_open_fds", "go_goroutines",
	} {
		if !strings.Contains(body, "\n"+want) {
			t.Errorf("no line %s", want)
		}
	}
	if strings.Contains(body, "secret") {
		t.Error("the name or id of a pod is among the metrics")
	}
	if t.Failed() {
		t.Log(body)
	}
	if status, _ := get(t, c, "/"); status != http.StatusNotFound {
		t.Errorf("another path is answered %d", status)
	}
	problems, err := promlint.New(strings.NewReader(body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestEveryMetricIsDocumented compares a scrape with the table in contrib/docs/metrics.md.
func TestEveryMetricIsDocumented(t *testing.T) {
	table, err := os.ReadFile("../../../contrib/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body := get(t, serve(t, seen()), Path)
	found := 0
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (podd_\w+) (\w+)$`).FindAllStringSubmatch(body, -1) {
		found++
		row := regexp.MustCompile("(?m)^\\|.*`" + m[1] + "`.*\\| " + m[2]).Find(table)
		if row == nil {
			t.Errorf("%s, a %s, is not in the table of contrib/docs/metrics.md", m[1], m[2])
		}
	}
	if found < 14 {
		t.Errorf("only %d metrics of podd's own were found", found)
	}
	for _, m := range regexp.MustCompile("`(podd_\\w+)`").FindAllSubmatch(table, -1) {
		if !strings.Contains(body, "# TYPE "+string(m[1])+" ") {
			t.Errorf("contrib/docs/metrics.md names %s, which does not exist", m[1])
		}
	}
}

func TestBucketsGoFromAMillisecondToAMinute(t *testing.T) {
	b := buckets()
	if len(b) > 20 || b[0] != 0.001 || b[len(b)-1] != 60 {
		t.Errorf("buckets %v", b)
	}
	for i := 1; i < len(b); i++ {
		if b[i] <= b[i-1] || b[i] > 2*b[i-1]+1e-9 {
			t.Errorf("bucket %v after %v: a value is not known to a factor of two", b[i], b[i-1])
		}
	}
}

// TestManyAtOnce is for the race detector: operations end while several scrapes are answered.
func TestManyAtOnce(t *testing.T) {
	m := seen()
	c := serve(t, m)
	var g sync.WaitGroup
	for i := range 4 {
		g.Go(func() {
			for range 20 {
				m.ObserveOperation(t.Context(), operation.Operation{Verb: fmt.Sprint("Verb", i), Outcome: operation.OutcomeOK})
			}
		})
		g.Go(func() {
			if status, _ := get(t, c, Path); status != http.StatusOK && status != http.StatusServiceUnavailable {
				t.Errorf("a scrape is answered %d", status)
			}
		})
	}
	g.Wait()
	_, body := get(t, c, Path)
	want := `podd_operation_duration_seconds_count{handler="",operation="Verb3",outcome="ok"} 20`
	if !strings.Contains(body, want) {
		t.Errorf("no line %s", want)
	}
}

func BenchmarkObserveOperation(b *testing.B) {
	m := New("v1")
	o := operation.Operation{Verb: "RunPodSandbox", Handler: "runc", Outcome: operation.OutcomeOK}
	for _, s := range []string{"record", "namespaces", "network", "files", "infra container"} {
		o.Stages = append(o.Stages, operation.Stage{Name: s, Took: operation.Duration(time.Millisecond)})
	}
	b.ReportAllocs()
	for b.Loop() {
		m.ObserveOperation(context.Background(), o)
	}
}

// brokenClient is the response of a scraper that has disconnected.
type brokenClient struct{ http.ResponseWriter }

func (brokenClient) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestScrapeBreaksOff: a scraper that disconnects costs one line of the log, not one for each metric family.
func TestScrapeBreaksOff(t *testing.T) {
	log, lines := logtest.NewNullLogger()
	request := httptest.NewRequest(http.MethodGet, Path, nil)
	seen().handler(log).ServeHTTP(brokenClient{httptest.NewRecorder()}, request)
	if n := len(lines.AllEntries()); n != 1 {
		t.Fatalf("%d lines were logged, want 1: %v", n, lines.AllEntries())
	}
	line := lines.LastEntry()
	err, _ := line.Data[logrus.ErrorKey].(error)
	if line.Message != "failed to send metrics" || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("logged %q with error %v, want \"failed to send metrics\" with %v", line.Message, err, syscall.EPIPE)
	}
}
