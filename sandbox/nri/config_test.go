package nri

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConfig: each bad value is an error that names its key.
func TestConfig(t *testing.T) {
	if wrong := wrongKeys(DefaultConfig()); len(wrong) > 0 {
		t.Errorf("Validate of the defaults reports %q, want none", wrong)
	}
	for _, tt := range []struct {
		key    string
		change func(*Config)
	}{
		{"socket", func(c *Config) { c.Socket = "nri.sock" }},
		{"socket", func(c *Config) { c.Socket = "/" + strings.Repeat("x", 107) }},
		{"plugin_dir", func(c *Config) { c.PluginDir = "/a/../b" }},
		{"config_dir", func(c *Config) { c.ConfigDir = "/" }},
		{"registration_timeout", func(c *Config) { c.RegistrationTimeout = 0 }},
		{"request_timeout", func(c *Config) { c.RequestTimeout = time.Hour }},
		{`plugins."a b"`, func(c *Config) { c.Plugins = map[string]PluginTable{"a b": {}} }},
		{`plugins."a".on_failure`, func(c *Config) { c.Plugins = map[string]PluginTable{"a": {OnFailure: "perhaps"}} }},
	} {
		c := DefaultConfig()
		tt.change(&c)
		if wrong := wrongKeys(c); !slices.Equal(wrong, []string{tt.key}) {
			t.Errorf("Validate reports %q, want %s", wrong, tt.key)
		}
	}
	empty := DefaultConfig()
	empty.Socket, empty.PluginDir, empty.ConfigDir = "", "", ""
	empty.Plugins = map[string]PluginTable{"a": {}, "b": {OnFailure: refuseOnFailure}, "c": {OnFailure: continueOnFailure}}
	if wrong := wrongKeys(empty); len(wrong) > 0 {
		t.Errorf("Validate without paths reports %q, want none", wrong)
	}
}

// wrongKeys returns the keys that Validate reports.
func wrongKeys(c Config) (keys []string) {
	c.Validate(func(key string, _ error) { keys = append(keys, key) })
	return keys
}
