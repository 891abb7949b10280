package streaming

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var upgradeSPDYHeaders = upgradeHeaders("SPDY/3.1", "v4.channel.k8s.io")

func upgradeHeaders(upgrade, protocol string) map[string]string {
	return map[string]string{"Upgrade": upgrade, "X-Stream-Protocol-Version": protocol}
}

func status(t *testing.T, u string, headers map[string]string) int {
	t.Helper()
	c, resp := dialUpgrade(t, u, headers)
	c.Close()
	return resp.StatusCode
}

func TestURLs(t *testing.T) {
	r := start(t, backend{})
	for want, u := range map[string]string{
		"exec":        r.execURL("secret", "argument"),
		"attach":      r.url(r.Attach("", &cri.AttachRequest{ContainerId: "c1", Stdout: true})),
		"portforward": r.forwardURL(),
	} {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		prefix := "http://" + r.Addr().String() + "/" + want + "/"
		if !strings.HasPrefix(u, prefix) {
			t.Errorf("URL = %s, want %s<token>", u, prefix)
		}
		if strings.Contains(u, "secret") || strings.Contains(u, "c1") || parsed.RawQuery != "" {
			t.Errorf("%s URL %s contains a part of the request, want only a token", want, u)
		}
	}
}

func TestBaseURL(t *testing.T) {
	for _, c := range []struct {
		addr string
		tls  bool
		want string
	}{
		{"127.0.0.1:80", false, "http://127.0.0.1:80"},
		{"[::1]:80", false, "http://[::1]:80"},
		{"0.0.0.0:80", true, "https://127.0.0.1:80"},
		{"[::]:80", true, "https://[::1]:80"},
		{"192.0.2.1:80", true, "https://192.0.2.1:80"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{}
		if c.tls {
			cfg.TLSCertFile, cfg.TLSKeyFile = "c", "k"
		}
		if got := baseURL(cfg, addr); got != c.want {
			t.Errorf("baseURL(%s) = %s, want %s", c.addr, got, c.want)
		}
	}
}

func TestInvalidRequests(t *testing.T) {
	r := start(t, backend{})
	many := make([]int32, 128)
	for i := range many {
		many[i] = int32(i + 1)
	}
	for name, err := range map[string]error{
		"terminal with stderr":     second(r.Exec("", &cri.ExecRequest{Tty: true, Stdout: true, Stderr: true})),
		"no stream":                second(r.Exec("", &cri.ExecRequest{Tty: true})),
		"attach terminal, stderr":  second(r.Attach("", &cri.AttachRequest{Tty: true, Stderr: true})),
		"attach no stream":         second(r.Attach("", &cri.AttachRequest{})),
		"port 0":                   second(r.PortForward("", &cri.PortForwardRequest{Port: []int32{0}})),
		"port 65536":               second(r.PortForward("", &cri.PortForwardRequest{Port: []int32{80, 65536}})),
		"more ports than channels": second(r.PortForward("", &cri.PortForwardRequest{Port: many})),
	} {
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v, want an invalid argument", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTokens: a token opens one session of its own kind; any other request is refused.
func TestTokens(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	base := "http://" + r.Addr().String()
	used := r.execURL()
	dialWebSocket(t, used, "v5.channel.k8s.io")
	recv(t, "the session", started)
	wrong := r.execURL()
	for name, c := range map[string]struct {
		url     string
		headers map[string]string
		want    int
	}{
		"used":         {used, upgradeSPDYHeaders, 404},
		"unknown":      {base + "/exec/ABCDEFGHIJKLMNOPQRSTUVWXYZ", upgradeSPDYHeaders, 404},
		"short":        {base + "/exec/A", upgradeSPDYHeaders, 404},
		"none":         {base + "/exec/", upgradeSPDYHeaders, 404},
		"root":         {base + "/", upgradeSPDYHeaders, 404},
		"traversal":    {base + "/exec/..%2fexec", upgradeSPDYHeaders, 307},
		"long":         {base + "/exec/" + strings.Repeat("A", 60_000), upgradeSPDYHeaders, 404},
		"too long":     {base + "/exec/" + strings.Repeat("A", 100_000), upgradeSPDYHeaders, 431},
		"other kind":   {strings.Replace(wrong, "exec", "attach", 1), upgradeSPDYHeaders, 404},
		"no protocol":  {r.execURL(), map[string]string{"Upgrade": "SPDY/3.1"}, 400},
		"bad protocol": {r.execURL(), upgradeHeaders("SPDY/3.1", "v9.channel.k8s.io"), 403},
		"bad upgrade":  {r.execURL(), upgradeHeaders("h2c", "v4.channel.k8s.io"), 400},
	} {
		if got := status(t, c.url, c.headers); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	if got := status(t, wrong, upgradeSPDYHeaders); got != 404 {
		t.Errorf("token used at a URL of another kind, then at its own: status %d, want 404", got)
	}
}

// TestPlainRequests: a request without an upgrade does not consume the token.
func TestPlainRequests(t *testing.T) {
	b, started, _ := held()
	r := start(t, b)
	u := r.execURL()
	defer http.DefaultClient.CloseIdleConnections()
	for method, want := range map[string]int{"GET": 400, "POST": 400, "PUT": 405, "DELETE": 405} {
		req, _ := http.NewRequest(method, u, nil)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %s, want %d", method, resp.Status, want)
		}
	}
	dialWebSocket(t, u, "v5.channel.k8s.io")
	recv(t, "the session", started)
}

func TestTokenExpiresAtTheServer(t *testing.T) {
	r := start(t, backend{}, func(c *setup) { c.token = time.Millisecond })
	u := r.execURL()
	eventually(t, "the token has expired", func() bool { return !valid(r.tickets, u[strings.LastIndex(u, "/")+1:]) })
	if got := status(t, u, upgradeSPDYHeaders); got != 404 {
		t.Errorf("expired token: status %d, want 404", got)
	}
}

// TestFloodOfTokens: unused URLs above maxTokens are refused.
func TestFloodOfTokens(t *testing.T) {
	r := start(t, backend{})
	for i := range maxTokens + 100 {
		_, err := r.Exec("", &cri.ExecRequest{ContainerId: "c1", Stdout: true})
		if i < maxTokens && err != nil || i >= maxTokens && !errors.Is(err, errdefs.ErrResourceExhausted) {
			t.Fatalf("request %d: %v, want resource exhausted from %d on", i, err, maxTokens)
		}
	}
}
