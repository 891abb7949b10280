package tracing

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"github.com/podd-project/podd/cmd/config"
)

// Config is the [tracing] section of podd.toml.
type Config struct {
	// Endpoint is "host:port", "unix:///path", or "" for no tracing.
	Endpoint string `toml:"endpoint" comment:"OTLP/gRPC endpoint of the collector: host:port (127.0.0.1:4317) or unix:///path. Empty: tracing is off."`
	// Insecure sends without TLS.
	Insecure bool `toml:"insecure" comment:"Connect to host:port without TLS. With TLS, the certificate must be trusted by the machine."`
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

// Validate returns everything that is wrong, as *config.FieldError joined. It does not connect to the endpoint.
func (c Config) Validate() error {
	var errs []error
	if err := c.validateEndpoint(); err != nil {
		errs = append(errs, config.Errorf("endpoint", "%w", err))
	}
	if c.SamplingRatePerMillion < 0 || c.SamplingRatePerMillion > million {
		errs = append(errs, config.Errorf("sampling_rate_per_million", "%d is not between 0 and %d",
			c.SamplingRatePerMillion, million))
	}
	return errors.Join(errs...)
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
