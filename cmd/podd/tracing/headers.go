package tracing

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
)

// headers returns the headers of headers_file, by lower-case name, nil without one. An error has no value of a header.
func (c Config) headers() (map[string]string, error) {
	if c.HeadersFile == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(c.HeadersFile)
	if err != nil {
		return nil, fmt.Errorf("headers_file: %w", err)
	}
	headers := map[string]string{}
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
