package streaming

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestConfigValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string // part of the error; "" for none
	}{
		{"defaults", func(*Config) {}, ""},
		{"IPv6 loopback", func(c *Config) { c.Address = "::1" }, ""},
		{"all of 127", func(c *Config) { c.Address = "127.1.2.3" }, ""},
		{"no idle timeout", func(c *Config) { c.IdleTimeout = 0 }, ""},
		{"no minimum version", func(c *Config) { c.TLSMinVersion = "" }, ""},
		{"public with TLS", func(c *Config) { c.Address, c.TLSCertFile, c.TLSKeyFile = "0.0.0.0", "c", "k" }, ""},
		{"public without TLS", func(c *Config) { c.Address = "192.0.2.1" }, "other machines"},
		{"wildcard without TLS", func(c *Config) { c.Address = "0.0.0.0" }, "other machines"},
		{"IPv6 wildcard without TLS", func(c *Config) { c.Address = "::" }, "other machines"},
		{"name", func(c *Config) { c.Address = "localhost" }, "not an IP address"},
		{"empty address", func(c *Config) { c.Address = "" }, "not an IP address"},
		{"port in address", func(c *Config) { c.Address = "127.0.0.1:80" }, "not an IP address"},
		{"port too high", func(c *Config) { c.Port = 65536 }, "port: 65536"},
		{"port negative", func(c *Config) { c.Port = -1 }, "port: -1"},
		{"certificate without key", func(c *Config) { c.TLSCertFile = "c" }, "set together"},
		{"key without certificate", func(c *Config) { c.TLSKeyFile = "k" }, "set together"},
		{"old TLS", func(c *Config) { c.TLSMinVersion = "1.1" }, "neither 1.2 nor 1.3"},
		{"negative idle", func(c *Config) { c.IdleTimeout = -1 }, "idle_timeout"},
		{"no sessions", func(c *Config) { c.MaxSessions = -1 }, "max_sessions"},
		{"no sessions of a pod", func(c *Config) { c.MaxSessionsPerPod = 0 }, "max_sessions_per_pod"},
	} {
		cfg := DefaultConfig()
		c.edit(&cfg)
		wrong := problems(cfg)
		if c.want == "" && len(wrong) > 0 || c.want != "" && (len(wrong) != 1 || !strings.Contains(wrong[0], c.want)) {
			t.Errorf("%s: Validate reports %q, want %q", c.name, wrong, c.want)
		}
	}
}

// problems returns what Validate reports, as "key: error".
func problems(c Config) (all []string) {
	c.Validate(func(key string, err error) { all = append(all, key+": "+err.Error()) })
	return all
}

func TestConfigReportsEverything(t *testing.T) {
	wrong := problems(Config{Port: -1, TLSMinVersion: "x"})
	for _, want := range []string{"address", "port: -1", "tls_min_version", "max_sessions", "max_sessions_per_pod"} {
		if !slices.ContainsFunc(wrong, func(w string) bool { return strings.HasPrefix(w, want) }) {
			t.Errorf("Validate reports %q, want also %q", wrong, want)
		}
	}
}

// TestConfigKeysAreDocumented: each field has a key and a comment in the configuration file.
func TestConfigKeysAreDocumented(t *testing.T) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if f.Tag.Get("toml") == "" || f.Tag.Get("comment") == "" {
			t.Errorf("%s has tags %q, want toml and comment", f.Name, f.Tag)
		}
	}
}
