package settings

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// TestFixedKeys: README.md lists the keys that a reload cannot change, those which are not in liveKeys.
func TestFixedKeys(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\n### Reload\n")
	text, _, _ = strings.Cut(text, "\n**To add a key**")
	listed := strings.Split(text, "`")
	c := Default()
	values := tomlconfig.New(&c).Values()
	for key := range values {
		section, _, _ := strings.Cut(key, ".")
		if known := slices.Contains(listed, key) || slices.Contains(listed, section); known == live(key) {
			t.Errorf("key %s: live = %t, in README.md = %t, want one of them", key, live(key), known)
		}
	}
	keys := slices.Collect(maps.Keys(values))
	for _, l := range liveKeys {
		below := func(key string) bool { return key == l || strings.HasPrefix(key, l+".") }
		if !slices.ContainsFunc(keys, below) && l != "runtime.annotation_handlers" && l != "runtime.default_ulimits" {
			t.Errorf("liveKeys has %q, which is not a key", l)
		}
	}
}

func TestChangedKeys(t *testing.T) {
	before := map[string]any{"log.level": "info", "root": "/a", "list": []string{"x"}, "runtime.handlers.a.path": "p"}
	after := map[string]any{"log.level": "debug", "root": "/a", "list": []string{"x", "y"}, "runtime.handlers.b.path": "p"}
	want := []string{"list", "log.level", "runtime.handlers.a.path", "runtime.handlers.b.path"}
	if d := cmp.Diff(want, ChangedKeys(before, after)); d != "" {
		t.Errorf("ChangedKeys(), -want +got:\n%s", d)
	}
	if changed := ChangedKeys(before, before); changed != nil {
		t.Errorf("ChangedKeys() of the same = %v, want none", changed)
	}
	if err := CheckLive([]string{"log.level", "runtime.handlers.a.path"}); err != nil {
		t.Errorf("CheckLive() = %v, want nil", err)
	}
	err := CheckLive([]string{"listen", "log.level", "runtime.stats_interval"})
	if err == nil || !strings.Contains(err.Error(), "only a restart can change listen, runtime.stats_interval:") {
		t.Errorf("CheckLive() = %v, want an error that names listen and runtime.stats_interval", err)
	}
}

// TestSameHandler: a handler is made again if its table changed, or a key that all handlers use.
func TestSameHandler(t *testing.T) {
	a := Default()
	for name, c := range map[string]struct {
		change func(*Config)
		want   bool
	}{
		"nothing":        {func(*Config) {}, true},
		"another table":  {func(c *Config) { c.Runtime.Handlers["crun"] = HandlerTable{Path: "/x"} }, true},
		"its table":      {func(c *Config) { c.Runtime.Handlers["runc"] = HandlerTable{Path: "/x"} }, false},
		"removed":        {func(c *Config) { delete(c.Runtime.Handlers, "runc") }, false},
		"criu":           {func(c *Config) { c.Runtime.CRIU = "/x/criu" }, false},
		"conmon":         {func(c *Config) { c.Runtime.Conmon = "/x" }, false},
		"exec cgroups":   {func(c *Config) { c.Runtime.ExecCgroups = true }, false},
		"search path":    {func(c *Config) { c.Runtime.SearchPath = []string{"/x"} }, false},
		"create timeout": {func(c *Config) { c.Runtime.CreateTimeout++ }, false},
		"kill timeout":   {func(c *Config) { c.Runtime.KillTimeout++ }, true},
	} {
		b := Default()
		c.change(&b)
		if got := SameHandler(&a, &b, "runc"); got != c.want {
			t.Errorf("%s: SameHandler() = %t, want %t", name, got, c.want)
		}
	}
}
