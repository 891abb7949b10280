package tracing

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
)

// WithEnvironment returns c with the variables of OpenTelemetry's specification for keys that are empty, and the
// attributes of the resource. getenv is os.Getenv. A variable for traces takes precedence over the one for all signals.
func (c Config) WithEnvironment(getenv func(string) string) (Config, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return Config{}, nil
	}
	get := func(name string) string {
		return cmp.Or(getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	if c.Endpoint == "" {
		endpoint := get("ENDPOINT")
		if endpoint == "" {
			return c, nil
		}
		c.Insecure = strings.EqualFold(get("INSECURE"), "true")
		if rest, ok := strings.CutPrefix(endpoint, "http://"); ok {
			endpoint, c.Insecure = rest, true
		} else if rest, ok := strings.CutPrefix(endpoint, "https://"); ok {
			endpoint, c.Insecure = rest, false
		}
		c.Endpoint = strings.TrimSuffix(endpoint, "/")
		if err := c.validateEndpoint(); err != nil {
			return c, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
		}
	}
	if !c.plain() {
		c.CAFile = cmp.Or(c.CAFile, get("CERTIFICATE"))
		if c.CertFile == "" {
			c.CertFile, c.KeyFile = get("CLIENT_CERTIFICATE"), get("CLIENT_KEY")
		}
	}
	c.Compression = cmp.Or(c.Compression, get("COMPRESSION"))
	if err := c.validateCompression(); err != nil {
		return c, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION: %w", err)
	}
	headers, err := parsePairs(get("HEADERS"))
	if err != nil {
		return c, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	c.Headers = map[string]string{}
	for name, value := range headers {
		if name = strings.ToLower(name); checkHeader(name) != nil {
			return c, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", checkHeader(name))
		}
		c.Headers[name] = value
	}
	var errs []error
	c.validateFiles(func(key string, err error) { errs = append(errs, fmt.Errorf("%s: %w", key, err)) })
	return c, errors.Join(errs...)
}

// parsePairs parses name=value,name=value, with percent-encoded values, as in W3C Baggage. An error
// has no value.
func parsePairs(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	pairs := map[string]string{}
	for i, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("entry %d is not of the form name=value", i+1)
		}
		pairs[strings.TrimSpace(name)] = plain
	}
	return pairs, nil
}

// resourceAttributes returns the attributes of podd's spans: the standard ones, by OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME, in that order.
func resourceAttributes(getenv func(string) string, version, host string) (map[string]string, error) {
	all := map[string]string{"service.name": "podd", "service.version": version, "host.name": host}
	more, err := parsePairs(getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	maps.Copy(all, more)
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		all["service.name"] = name
	}
	return all, nil
}
