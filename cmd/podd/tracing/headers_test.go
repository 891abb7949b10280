package tracing

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// authority is a certificate authority of a test, with its files.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	a.issue(t, "ca")
	a.pool.AddCert(a.cert)
	return a
}

// issue writes NAME.crt and NAME.key; the first is the authority's own.
func (a *authority) issue(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
		IsCA: a.cert == nil, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if a.cert == nil {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if template.IsCA {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(t, name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(a.path(name), content, 0o600); err != nil {
		t.Fatal(err)
	}
	return a.path(name)
}

// TestMutualTLS sends spans to a collector that asks for a certificate of a private authority and for a header.
func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "server")
	a.issue(t, "client")
	own, err := tls.LoadX509KeyPair(a.path("server.crt"), a.path("server.key"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan metadata.MD, 10)
	r := &receiver{answer: func(ctx context.Context) error {
		md, _ := metadata.FromIncomingContext(ctx)
		got <- md
		return nil
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	collector.RegisterTraceServiceServer(srv, r)
	go srv.Serve(l)
	t.Cleanup(srv.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", a.path("ca.crt"))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", a.path("client.crt"))
	t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", a.path("client.key"))
	cfg := Config{
		Endpoint: "https://" + l.Addr().String(), SamplingRatePerMillion: million,
		HeadersFile: a.write(t, "headers", []byte("# of the collector\n\nAuthorization: Bearer a:b\nx-team: of the file\n")),
	}
	tr, out := tracer(t, cfg)
	tr.ObserveOperation(t.Context(), runPod())
	flush(t, tr)
	if len(r.all(t)) == 0 {
		t.Fatalf("the collector got no spans: %s", out)
	}
	md := <-got
	for name, want := range map[string]string{"authorization": "Bearer a:b", "x-team": "of the file"} {
		if v := md.Get(name); len(v) != 1 || v[0] != want {
			t.Errorf("header %s = %q, want %q", name, v, want)
		}
	}
	// Without podd's certificate, or another authority, the collector is not reached.
	other := newAuthority(t)
	for name, ca := range map[string]string{
		"no certificate": a.path("ca.crt"), "another authority": other.path("ca.crt"),
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
		t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "")
		t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", "")
		tr, out := tracer(t, cfg)
		tr.ObserveOperation(t.Context(), runPod())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_ = tr.Shutdown(ctx)
		cancel()
		for end := time.Now().Add(exportTimeout); tr.Spans()["failed"] == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		if !strings.Contains(out.String(), "failed to send spans") || strings.Contains(out.String(), "a:b") {
			t.Errorf("%s: log %q, want that no spans were sent, without the header", name, out)
		}
	}
}

func TestWrongHeaders(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("x-good: 1\nplanted word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		bad: "bad:2 is not of the form", "/nonexistent": "headers_file: open /nonexist",
	} {
		_, err := New(Config{Endpoint: "http://127.0.0.1:1", HeadersFile: file}, "v1", logrus.New())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "planted") {
			t.Errorf("New() = %v, want %q and no content of the file", err, want)
		}
	}
	err := validate(Config{HeadersFile: "headers"})
	if err == nil || !strings.Contains(err.Error(), `headers_file: "headers" is not an absolute path`) {
		t.Errorf("Validate() = %v, want an error of headers_file", err)
	}
}

// TestEnvironment: OpenTelemetry's variables set the endpoint, the attributes of the process, or turn tracing off.
func TestEnvironment(t *testing.T) {
	r := &receiver{}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", listen(t, r))
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
	t.Setenv("OTEL_SERVICE_NAME", "podd-canary")
	cfg := Config{SamplingRatePerMillion: million}
	if !cfg.Enabled(os.Getenv) {
		t.Error("Enabled with the variable of an endpoint = false, want true")
	}
	tr, out := tracer(t, cfg)
	tr.ObserveOperation(t.Context(), runPod())
	flush(t, tr)
	if len(r.all(t)) != 3 || len(r.encodings) != 1 || r.encodings[0] != "gzip" {
		t.Fatalf("%d spans, encodings %q, want 3 and gzip; logged %s", len(r.all(t)), r.encodings, out)
	}
	if name := attributesText(r.spans[0].GetResource().GetAttributes())["service.name"]; name != "podd-canary" {
		t.Errorf("service.name = %q, want podd-canary", name)
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if cfg.Enabled(os.Getenv) {
		t.Error("Enabled with OTEL_SDK_DISABLED = true, want false")
	}
}

// TestWrongVariables: the SDK ignores a variable that it cannot use, and prints its value to stderr. New fails instead,
// without the value.
func TestWrongVariables(t *testing.T) {
	const secret = "Bearer-hunter2"
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ variable, value, want string }{
		{"HEADERS", secret, "parse headers"},
		{"HEADERS", "a=%zz" + secret, "escape header value"},
		{"TRACES_HEADERS", secret, "parse headers"},
		{"ENDPOINT", "http://user:" + secret + "@[", "parse url"},
		{"CERTIFICATE", "/nonexistent", "open /nonexistent: no such file"},
		{"CERTIFICATE", empty, "create tls cert pool"},
		{"CLIENT_CERTIFICATE", "/nonexistent", "open /nonexistent: no such file"},
	} {
		t.Run(tt.variable+" "+tt.want, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", empty)
			t.Setenv("OTEL_EXPORTER_OTLP_"+tt.variable, tt.value)
			var err error
			printed := onStderr(t, func() {
				_, err = New(Config{Endpoint: "http://127.0.0.1:1"}, "v1", logrus.New())
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("New() = %v, want %q without the value", err, tt.want)
			}
			if strings.Contains(printed, secret) {
				t.Errorf("printed %q, want it without the value", printed)
			}
		})
	}
}

// onStderr returns what f writes to the process's stderr.
func onStderr(t *testing.T, f func()) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stderr")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stderr, err := unix.Dup(2)
	if err == nil {
		err = unix.Dup3(int(file.Fd()), 2, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	f()
	if err := errors.Join(unix.Dup3(stderr, 2, 0), unix.Close(stderr)); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
