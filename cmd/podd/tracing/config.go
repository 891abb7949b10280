package tracing

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// Config is the [tracing] section of podd.toml.
type Config struct {
	// Endpoint is "host:port", "unix:///path", or "" for no tracing.
	Endpoint string `toml:"endpoint" comment:"OTLP/gRPC endpoint of the collector: host:port (127.0.0.1:4317) or unix:///path. Empty: tracing is off, unless podd's environment has OTEL_EXPORTER_OTLP_ENDPOINT. Its other variables for keys that are empty here are used too, see OpenTelemetry's specification of an OTLP exporter."`
	// Insecure sends without TLS.
	Insecure bool `toml:"insecure" comment:"Connect to host:port without TLS. With TLS, the certificate must be trusted by the machine, or by ca_file."`
	// CAFile, CertFile, KeyFile and HeadersFile are absolute paths.
	CAFile      string `toml:"ca_file" comment:"File with PEM certificates of the authorities that the collector's certificate must be of, in place of those of the machine."`
	CertFile    string `toml:"cert_file" comment:"File with podd's own PEM certificate, for a collector that asks for one. It is read for each connection."`
	KeyFile     string `toml:"key_file" comment:"File with the private key of cert_file."`
	HeadersFile string `toml:"headers_file" comment:"File with headers of each request, such as the credentials of a hosted collector: lines of the form name: value. It should be readable by root only."`
	// Compression is "gzip", "none" or "".
	Compression string `toml:"compression" comment:"How spans are compressed: gzip, or none. Empty: none."`
	// Headers are those of the environment, by lower-case name; see WithEnvironment.
	Headers map[string]string `toml:"-"`
	// SamplingRatePerMillion is how many of a million traces that podd starts are sampled.
	SamplingRatePerMillion int `toml:"sampling_rate_per_million" comment:"How many of a million traces are sampled. Calls of a kubelet that traces follow the kubelet's own sampling."`
}

// million is the sampling rate of every trace.
const million = 1_000_000

// DefaultConfig has no endpoint, and samples every trace.
func DefaultConfig() Config { return Config{SamplingRatePerMillion: million} }

// Enabled reports whether an endpoint is configured.
func (c Config) Enabled() bool { return c.Endpoint != "" }

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
	c.validateFiles(problem)
	if c.SamplingRatePerMillion < 0 || c.SamplingRatePerMillion > million {
		problem("sampling_rate_per_million", fmt.Errorf("%d is not between 0 and %d",
			c.SamplingRatePerMillion, million))
	}
}

// Values of compression; "" is compressionNone.
const (
	compressionNone = "none"
	compressionGzip = "gzip"
)

func (c Config) validateCompression() error {
	switch c.Compression {
	case "", compressionNone, compressionGzip:
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", c.Compression, compressionGzip, compressionNone)
}

func (c Config) validateEndpoint() error {
	if !c.Enabled() {
		return nil
	}
	if path, ok := strings.CutPrefix(c.Endpoint, unixPrefix); ok {
		if !filepath.IsAbs(path) || path != filepath.Clean(path) {
			return fmt.Errorf("%q is not the clean absolute path of a socket", path)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(c.Endpoint)
	if err != nil || host == "" || port == "" || strings.ContainsAny(c.Endpoint, "/?# ") {
		return fmt.Errorf("%q is neither host:port nor unix:///path", c.Endpoint)
	}
	return nil
}
