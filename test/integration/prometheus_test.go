package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPrometheus has the real Prometheus, the file that $PROMETHEUS names, scrape a podd that runs pods, and evaluates
// the alerts and the dashboard of contrib/prometheus. `make test-prometheus` runs it.
func TestPrometheus(t *testing.T) {
	program := os.Getenv("PROMETHEUS")
	if program == "" {
		t.Skip("PROMETHEUS is not set: make test-prometheus sets it")
	}
	metrics, web := freePort(t), freePort(t)
	k := start(t, fmt.Sprintf(`metrics.address = "127.0.0.1:%d"`, metrics))
	rules, err := filepath.Abs("../../contrib/prometheus/rules.yaml")
	k.ok("find the rules", err)
	k.ok("write Prometheus' configuration", os.WriteFile(k.Path("prometheus.yaml"), fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: podd
  static_configs: [{targets: ["127.0.0.1:%d"]}]
`, rules, metrics), 0o644))
	server := exec.Command(program, "--config.file="+k.Path("prometheus.yaml"), "--storage.tsdb.path="+k.Path("tsdb"),
		fmt.Sprintf("--web.listen-address=127.0.0.1:%d", web))
	log, err := os.Create(k.Path("prometheus.log"))
	k.ok("make a log", err)
	server.Stdout, server.Stderr = log, log
	k.ok("start Prometheus", server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		log.Close()
	})
	p := prometheus{k, fmt.Sprintf("http://127.0.0.1:%d", web)}
	k.eventually("Prometheus has scraped podd twice", func() bool {
		n, err := p.query("count_over_time(podd_build_info[1m]) >= 2")
		return err == nil && n > 0
	})
	for range 3 {
		k.removePod(firstOf(k.sleeper()))
	}
	k.sleeper()
	time.Sleep(5 * time.Second) // some scrapes, for rates
	p.checkDashboard()
	p.checkAlerts()
}

func firstOf(pod, _ string) string { return pod }

// freePort returns a port of the loopback address that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// prometheus is a running server.
type prometheus struct {
	k   *kubelet
	url string
}

// get decodes the data of an answer of the HTTP API.
func (p prometheus) get(path string, data any) error {
	resp, err := http.Get(p.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return json.Unmarshal(text, &struct{ Data any }{data})
}

// query returns the number of samples that an expression has now.
func (p prometheus) query(expr string) (int, error) {
	var data struct{ Result []any }
	err := p.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	return len(data.Result), err
}

// checkDashboard evaluates each expression of the dashboard. On this node none has a value only if it is about failures
// or plugins, of which there are none.
func (p prometheus) checkDashboard() {
	p.k.Helper()
	raw, err := os.ReadFile("../../contrib/prometheus/dashboard.json")
	p.k.ok("read the dashboard", err)
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	p.k.ok("parse the dashboard", json.Unmarshal(raw, &board))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			n, err := p.query(variables.Replace(target.Expr))
			p.k.ok("evaluate "+target.Expr, err)
			quiet := strings.Contains(panel.Title, "failed") || strings.HasPrefix(panel.Title, "NRI") ||
				panel.Title == "Operations in progress"
			if n == 0 && !quiet {
				p.k.Errorf("panel %q: no values for %s", panel.Title, target.Expr)
			}
		}
	}
	if len(board.Panels) < 10 {
		p.k.Errorf("the dashboard has %d panels, want more", len(board.Panels))
	}
}

// checkAlerts checks that Prometheus evaluates all rules without an error, and that none fires on a healthy node.
func (p prometheus) checkAlerts() {
	p.k.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError, State string }
		}
	}
	p.k.ok("list the rules", p.get("/api/v1/rules", &data))
	n := 0
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			n++
			if rule.Health != "ok" || rule.State == "firing" {
				p.k.Errorf("rule %s: %s %s, %s, want it evaluated and not firing", rule.Name, rule.Health, rule.LastError,
					rule.State)
			}
		}
	}
	if n < 10 {
		p.k.Errorf("Prometheus has %d rules, want all", n)
	}
}
