package streaming

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeCert makes a self-signed key pair with the given serial number in dir.
func writeCert(t *testing.T, dir string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "podd"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		// The server compares mtimes; two writes within the clock's resolution must differ.
		stamp := time.Unix(1_000_000_000+serial, 0)
		if err := os.Chtimes(name, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

func withTLS(t *testing.T, version string) (dir string, edit func(*setup)) {
	dir = t.TempDir()
	return dir, func(c *setup) {
		c.TLSCertFile, c.TLSKeyFile = writeCert(t, dir, 1)
		c.TLSMinVersion = version
	}
}

func TestTLS(t *testing.T) {
	b := backend{exec: func(_ context.Context, _ string, _ []string, s Streams) (int, error) {
		word := make([]byte, 5)
		_, err := io.ReadFull(s.Stdin, word)
		fmt.Fprintf(s.Stdout, "%s", word)
		return 0, err
	}}
	_, edit := withTLS(t, "1.2")
	for _, tr := range transports() {
		t.Run(tr.name, func(t *testing.T) {
			r := start(t, b, edit)
			u := r.execURL()
			if !strings.HasPrefix(u, "https://127.0.0.1:") {
				t.Errorf("URL = %s, want https://127.0.0.1:<port>/...", u)
			}
			if got := tr.stream(t, u, strings.NewReader("hello"), false, nil); got.err != nil || got.stdout != "hello" {
				t.Errorf("client got %+v, want stdout %q", got, "hello")
			}
		})
	}
}

// TestTLSVanish: a disconnected client is noticed below TLS.
func TestTLSVanish(t *testing.T) {
	b, started, ended := held()
	_, edit := withTLS(t, "1.3")
	r := start(t, b, edit)
	u := r.execURL()
	c, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		u[strings.Index(u, "/exec"):])
	recv(t, "the session", started)
	vanish(c.NetConn(), "closed")
	wantCause(t, ended, errGone)
	r.noSession()
}

func TestTLSMinVersion(t *testing.T) {
	for _, c := range []struct {
		min    string
		client uint16
		ok     bool
	}{
		{"1.2", tls.VersionTLS11, false}, {"1.2", tls.VersionTLS12, true}, {"1.2", tls.VersionTLS13, true},
		{"1.3", tls.VersionTLS12, false}, {"1.3", tls.VersionTLS13, true},
	} {
		_, edit := withTLS(t, c.min)
		r := start(t, backend{}, edit)
		conn, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: c.client,
		})
		if (err == nil) != c.ok {
			t.Errorf("tls_min_version %s, client up to %x: %v, want success %v", c.min, c.client, err, c.ok)
		}
		if err == nil {
			conn.Close()
		}
	}
}

// TestHTTP2: plain requests may use HTTP/2; a token sent that way is not consumed.
func TestHTTP2(t *testing.T) {
	b, started, _ := held()
	_, edit := withTLS(t, "1.2")
	r := start(t, b, edit)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	u := r.execURL()
	for target, want := range map[string]int{u: 400, u + "x": 404} {
		resp, err := client.Get(target)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != want {
			t.Errorf("GET %s: %s, status %s; want HTTP/2 and %d", target, resp.Proto, resp.Status, want)
		}
	}
	done := make(chan result, 1)
	go func() { done <- transports()[0].stream(t, u, blocked{t.Context()}, false, nil) }()
	recv(t, "the session", started)
	r.Close(t.Context())
	recv(t, "the client to end", done)
}

// TestTLSHandshakeTimeout: a client that connects and sends nothing is disconnected.
func TestTLSHandshakeTimeout(t *testing.T) {
	_, edit := withTLS(t, "1.2")
	r := start(t, backend{}, edit, func(c *setup) { c.header = 50 * time.Millisecond })
	c := dialRaw(t, r)
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("read: %v, want a closed connection", err)
	}
}

// TestCertificateRenewal: a new pair is used for the next connection; while it is incomplete, the old one is.
func TestCertificateRenewal(t *testing.T) {
	dir, edit := withTLS(t, "1.2")
	r := start(t, backend{}, edit)
	wantSerial := func(want int64, when string) {
		t.Helper()
		c, err := tls.Dial("tcp", r.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want {
			t.Errorf("%s: serial = %d, want %d", when, got, want)
		}
	}
	wantSerial(1, "at start")
	writeCert(t, dir, 2)
	wantSerial(2, "after renewal")
	cert, key := writeCert(t, dir, 3)
	os.WriteFile(key, []byte("half of"), 0o600)
	wantSerial(2, "with an incomplete key")
	os.Remove(cert)
	wantSerial(2, "without a certificate")
	writeCert(t, dir, 4)
	wantSerial(4, "after the next renewal")
}

func TestCertificateMissingAtStart(t *testing.T) {
	cfg := DefaultConfig()
	cfg.TLSCertFile, cfg.TLSKeyFile = "/nonexistent/cert", "/nonexistent/key"
	_, err := New(cfg, limitsOf(budgetsFor(cfg)), backend{}, discardLog())
	if err == nil || !strings.Contains(err.Error(), cfg.TLSCertFile) {
		t.Errorf("New = %v, want an error about %s", err, cfg.TLSCertFile)
	}
}
