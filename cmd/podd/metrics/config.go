package metrics

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Config is the [metrics] section of podd.toml.
type Config struct {
	// Address is "unix:///path", "IP:port", or "" for no endpoint.
	Address string `toml:"address" comment:"Where podd's own metrics can be scraped, path /metrics: a unix socket, which only root can open, or an IP address and port (127.0.0.1:9478) as Prometheus needs it. Empty: metrics are off."`
	// AllowRemote allows an Address that other machines can reach.
	AllowRemote bool `toml:"allow_remote" comment:"Allow an address that other machines can reach. The metrics name no pod, but anyone who can connect can read them."`
}

// DefaultConfig serves metrics on a socket in the run directory.
func DefaultConfig() Config { return Config{Address: SocketAddress("/run/podd")} }

// SocketAddress returns the Address of the socket in a run directory.
func SocketAddress(run string) string { return unixPrefix + filepath.Join(run, "metrics.sock") }

// unixPrefix marks an address that is a socket's path.
const unixPrefix = "unix://"

// maxSocketPath is the size of sun_path without the terminating zero.
const maxSocketPath = 107

// Enabled reports whether an endpoint is configured.
func (c Config) Enabled() bool { return c.Address != "" }

// SocketPath returns the path of the unix socket, "" for a TCP address.
func (c Config) SocketPath() string {
	path, _ := strings.CutPrefix(c.Address, unixPrefix)
	if path == c.Address {
		return ""
	}
	return path
}

// Validate reports each wrong key. It opens no file and no socket.
func (c Config) Validate(problem func(key string, err error)) {
	if !c.Enabled() {
		return
	}
	if err := c.validateAddress(); err != nil {
		problem("address", err)
	}
}

func (c Config) validateAddress() error {
	if path, ok := strings.CutPrefix(c.Address, unixPrefix); ok {
		return validateSocket(path)
	}
	host, port, err := net.SplitHostPort(c.Address)
	if err != nil {
		return fmt.Errorf("%q is neither unix:///path nor an IP address and port", c.Address)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("%q is not an IP address", host)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q is not a port between 1 and 65535", port)
	}
	if !ip.IsLoopback() && !c.AllowRemote {
		return fmt.Errorf("other machines can reach %s: use a loopback address or a unix socket, or set allow_remote", host)
	}
	return nil
}

func validateSocket(path string) error {
	switch {
	case !filepath.IsAbs(path) || path != filepath.Clean(path) || path == "/":
		return fmt.Errorf("%q is not the clean absolute path of a socket", path)
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q contains a control character", path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("%q is longer than the %d bytes of a unix socket's path", path, maxSocketPath)
	}
	return nil
}
