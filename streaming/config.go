package streaming

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/containerd/errdefs"
)

// Config is the [streaming] section of podd.toml.
type Config struct {
	// Address is the IP address to listen on. The kubelet is on this node, so loopback is enough; any other needs TLS.
	Address string `toml:"address" comment:"IP address to listen on. The kubelet connects from this node, so loopback is enough; any other address needs TLS."`
	// Port is the TCP port, 0 for any free one; the URLs contain it.
	Port int `toml:"port" comment:"TCP port. 0: any free port."`
	// TLSCertFile and TLSKeyFile are PEM files; with both set, URLs are https. Replaced files are reloaded.
	TLSCertFile string `toml:"tls_cert_file" comment:"PEM file with the certificate chain. If it and tls_key_file are set, URLs are https. Reloaded when replaced."`
	TLSKeyFile  string `toml:"tls_key_file" comment:"PEM file with the key of the certificate."`
	// TLSMinVersion is "1.2" or "1.3".
	TLSMinVersion string `toml:"tls_min_version" comment:"Minimum TLS version: 1.2 or 1.3."`
	// IdleTimeout ends a session in which no byte moved for this long; 0 disables it. Pings do not count.
	IdleTimeout time.Duration `toml:"idle_timeout" comment:"End a session that moved no byte for this long. 0: never."`
	// MaxSessions bounds the sessions; a client above it gets 503 and may retry with the same URL.
	MaxSessions int `toml:"max_sessions" comment:"Maximum number of sessions; more get HTTP 503."`
	// MaxSessionsPerPod is how many of them one pod may have.
	MaxSessionsPerPod int `toml:"max_sessions_per_pod" comment:"Maximum number of sessions of one pod; more get HTTP 503."`
}

// DefaultConfig serves loopback without TLS.
func DefaultConfig() Config {
	return Config{
		Address:           "127.0.0.1",
		TLSMinVersion:     "1.2",
		IdleTimeout:       4 * time.Hour,
		MaxSessions:       1024,
		MaxSessionsPerPod: 256,
	}
}

// Validate reports each wrong key. It does not open the TLS files.
func (c *Config) Validate(problem func(key string, err error)) {
	addr, err := netip.ParseAddr(c.Address)
	switch {
	case err != nil:
		problem("address", fmt.Errorf("%q is not an IP address", c.Address))
	case !addr.IsLoopback() && !c.tls():
		// Commands, terminals and tokens would cross the network unencrypted.
		problem("address", fmt.Errorf(
			"%s can be reached from other machines: set tls_cert_file and tls_key_file, or use 127.0.0.1", c.Address))
	}
	if c.Port < 0 || c.Port > 65535 {
		problem("port", fmt.Errorf("%d is not between 0 and 65535", c.Port))
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		problem("tls_cert_file", errors.New("tls_cert_file and tls_key_file must be set together"))
	}
	if _, err := c.tlsVersion(); err != nil {
		problem("tls_min_version", fmt.Errorf("%q is neither 1.2 nor 1.3", c.TLSMinVersion))
	}
	if c.IdleTimeout < 0 {
		problem("idle_timeout", fmt.Errorf("%v is negative", c.IdleTimeout))
	}
	for _, n := range []struct {
		key string
		n   int
	}{
		{"max_sessions", c.MaxSessions}, {"max_sessions_per_pod", c.MaxSessionsPerPod},
	} {
		if n.n <= 0 {
			problem(n.key, fmt.Errorf("%d is not positive", n.n))
		}
	}
}

func (c *Config) tls() bool { return c.TLSCertFile != "" && c.TLSKeyFile != "" }

func (c *Config) tlsVersion() (uint16, error) {
	switch c.TLSMinVersion {
	case "", "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, errdefs.ErrInvalidArgument
}
