package nri

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/podd-project/podd/cmd/config"
)

// TestConfig: each bad value is an error that names its key.
func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Errorf("Validate of the defaults = %v, want none", err)
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
		{"plugins.a b", func(c *Config) { c.Plugins = map[string]PluginTable{"a b": {}} }},
		{"plugins.a.on_failure", func(c *Config) { c.Plugins = map[string]PluginTable{"a": {OnFailure: "perhaps"}} }},
	} {
		c := DefaultConfig()
		tt.change(&c)
		var field *config.FieldError
		if err := c.Validate(); !errors.As(err, &field) || field.Key != tt.key {
			t.Errorf("Validate = %v, want an error of %s", err, tt.key)
		}
	}
	empty := DefaultConfig()
	empty.Socket, empty.PluginDir, empty.ConfigDir = "", "", ""
	empty.Plugins = map[string]PluginTable{"a": {}, "b": {OnFailure: refuseOnFailure}, "c": {OnFailure: continueOnFailure}}
	if err := empty.Validate(); err != nil {
		t.Errorf("Validate without paths = %v, want none", err)
	}
}
