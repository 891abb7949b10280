package tracing

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// validateFiles checks the keys that name files, and opens none.
func (c Config) validateFiles(problem func(key string, err error)) {
	for _, f := range []struct{ key, path string }{
		{"ca_file", c.CAFile}, {"cert_file", c.CertFile}, {"key_file", c.KeyFile}, {"headers_file", c.HeadersFile},
	} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			problem(f.key, fmt.Errorf("%q is not an absolute path", f.path))
		}
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		problem("cert_file", errors.New("needs key_file, and key_file needs it"))
	}
	if c.plain() && c.CAFile+c.CertFile != "" {
		problem("ca_file", errors.New("and cert_file are for TLS, which endpoint or insecure exclude"))
	}
}

// plain reports whether the connection is without TLS.
func (c Config) plain() bool { return c.Insecure || strings.HasPrefix(c.Endpoint, unixPrefix) }

// transport returns how the collector is authenticated, and podd to it.
func (c Config) transport() (credentials.TransportCredentials, error) {
	if c.plain() {
		return insecure.NewCredentials(), nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s has no PEM certificate", c.CAFile)
		}
	}
	if c.CertFile != "" {
		// For each connection: certificates are renewed while podd runs.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &cert, err
		}
		if _, err := t.GetClientCertificate(nil); err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
	}
	return credentials.NewTLS(t), nil
}

// allHeaders returns the headers of each request, by lower-case name. Those of the file override the environment's. An
// error has no value of a header.
func (c Config) allHeaders() (map[string]string, error) {
	headers := maps.Clone(c.Headers)
	if c.HeadersFile == "" {
		return headers, nil
	}
	raw, err := os.ReadFile(c.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("headers_file: %w", err)
	}
	if headers == nil {
		headers = map[string]string{}
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || checkHeader(name) != nil {
			return nil, fmt.Errorf("headers_file: %s:%d is not of the form name: value", c.HeadersFile, n)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, lines.Err()
}

// checkHeader returns an error for a name that gRPC does not send.
func checkHeader(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-_."
	if name == "" || strings.Trim(name, allowed) != "" || strings.HasPrefix(name, "grpc-") {
		return fmt.Errorf("%q is not the name of a header", name)
	}
	return nil
}
