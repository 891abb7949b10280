package tracing

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
)

// Config is the [tracing] section of podd.toml.
type Config struct {
	// Endpoint is "http://host:port", "https://host:port", "unix:///path", or "" for no tracing.
	Endpoint string `toml:"endpoint" comment:"OTLP/gRPC endpoint of the collector: http://host:port (http://127.0.0.1:4317) without TLS, https://host:port, or unix:///path. Empty: tracing is off, unless podd's environment has OTEL_EXPORTER_OTLP_ENDPOINT. OpenTelemetry's other variables are used too: OTEL_EXPORTER_OTLP_CERTIFICATE for a private authority, OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and _CLIENT_KEY for a collector that asks for a certificate."`
	// HeadersFile is an absolute path.
	HeadersFile string `toml:"headers_file" comment:"File with headers of each request, such as the credentials of a hosted collector: lines of the form name: value. It should be readable by root only."`
	// Compression is "gzip" or "".
	Compression string `toml:"compression" comment:"How spans are compressed: gzip. Empty: not, unless podd's environment has OTEL_EXPORTER_OTLP_COMPRESSION."`
	// SamplingRatePerMillion is how many of a million traces that podd starts are sampled.
	SamplingRatePerMillion int `toml:"sampling_rate_per_million" comment:"How many of a million traces are sampled. Calls of a kubelet that traces follow the kubelet's own sampling."`
}

// million is the sampling rate of every trace.
const million = 1_000_000

// DefaultConfig has no endpoint, and samples every trace.
func DefaultConfig() Config { return Config{SamplingRatePerMillion: million} }

// Enabled reports whether an endpoint is configured, by the key or by OpenTelemetry's variables. getenv is os.Getenv.
func (c Config) Enabled(getenv func(string) string) bool {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return c.Endpoint+getenv("OTEL_EXPORTER_OTLP_ENDPOINT")+getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// unixPrefix marks an endpoint that is a socket's path.
const unixPrefix = "unix://"

// Validate reports each wrong key. It does not connect to the endpoint.
func (c Config) Validate(problem func(key string, err error)) {
	if err := c.validateEndpoint(); err != nil {
		problem("endpoint", err)
	}
	if err := c.validateCompression(); err != nil {
		problem("compression", err)
	}
	if c.HeadersFile != "" && !filepath.IsAbs(c.HeadersFile) {
		problem("headers_file", fmt.Errorf("%q is not an absolute path", c.HeadersFile))
	}
	if c.SamplingRatePerMillion < 0 || c.SamplingRatePerMillion > million {
		problem("sampling_rate_per_million", fmt.Errorf("%d is not between 0 and %d",
			c.SamplingRatePerMillion, million))
	}
}

// compressionGzip is the value of compression.
const compressionGzip = "gzip"

func (c Config) validateCompression() error {
	switch c.Compression {
	case "", compressionGzip:
		return nil
	}
	return fmt.Errorf("%q is neither %s nor empty", c.Compression, compressionGzip)
}

func (c Config) validateEndpoint() error {
	if c.Endpoint == "" {
		return nil
	}
	if path, ok := strings.CutPrefix(c.Endpoint, unixPrefix); ok {
		if !filepath.IsAbs(path) || path != filepath.Clean(path) {
			return fmt.Errorf("%q is not the clean absolute path of a socket", path)
		}
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" ||
		u.String() != u.Scheme+"://"+u.Host {
		return fmt.Errorf("%q is neither http://host:port, https://host:port nor unix:///path", c.Endpoint)
	}
	return nil
}

// options returns the options of the exporter for the keys that are set. It reads headers_file.
func (c Config) options() ([]otlptracegrpc.Option, error) {
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{
			Enabled: true, InitialInterval: 500 * time.Millisecond, MaxInterval: 3 * time.Second, MaxElapsedTime: exportTimeout,
		}),
	}
	switch {
	case strings.HasPrefix(c.Endpoint, unixPrefix):
		options = append(options, otlptracegrpc.WithEndpoint(c.Endpoint), otlptracegrpc.WithInsecure())
	case c.Endpoint != "":
		options = append(options, otlptracegrpc.WithEndpointURL(c.Endpoint))
	}
	if c.Compression == compressionGzip {
		options = append(options, otlptracegrpc.WithCompressor(compressionGzip))
	}
	headers, err := c.headers()
	if headers != nil {
		options = append(options, otlptracegrpc.WithHeaders(headers))
	}
	return options, err
}
