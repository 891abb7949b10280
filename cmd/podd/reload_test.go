package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/tomlconfig"
)

// TestFixedKeys: README.md lists the keys that a reload cannot change, those which are not in liveKeys.
func TestFixedKeys(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(readme), "\n### Reload\n")
	text, _, _ = strings.Cut(text, "\n**To add a key**")
	listed := strings.Split(text, "`")
	c := defaultConfig()
	values := tomlconfig.New(&c).Values()
	for key := range values {
		section, _, _ := strings.Cut(key, ".")
		if known := slices.Contains(listed, key) || slices.Contains(listed, section); known == live(key) {
			t.Errorf("key %s: live = %t, in README.md = %t, want one of them", key, live(key), known)
		}
	}
	keys := mapKeys(values)
	for _, l := range liveKeys {
		below := func(key string) bool { return key == l || strings.HasPrefix(key, l+".") }
		if !slices.ContainsFunc(keys, below) && l != "runtime.annotation_handlers" && l != "runtime.default_ulimits" {
			t.Errorf("liveKeys has %q, which is no key", l)
		}
	}
}

func mapKeys(m map[string]any) (keys []string) {
	for key := range m {
		keys = append(keys, key)
	}
	return keys
}

// TestClientOfAWrongConfiguration: the daemon's directory is found as long as the file that names it can be read.
func TestClientOfAWrongConfiguration(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": "run = \"/run/here\"\n[log]\nlevel = \"loud\"\n", "podd.toml.d/1.toml": "run = [\n",
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "/run/here/admin.sock"},
		{[]string{"--run", "/run/flag"}, "/run/flag/admin.sock"},
		{[]string{"--set", "run=/run/set"}, "/run/set/admin.sock"},
	} {
		_, errs, code := command(append([]string{"status", "--config", file}, c.args...)...)
		if code != exitFailure || !strings.Contains(errs, "no daemon listens on "+c.want) {
			t.Errorf("status %v = %d, %q, want 1 and %s", c.args, code, errs, c.want)
		}
	}
}

func TestChangedKeys(t *testing.T) {
	before := map[string]any{"log.level": "info", "root": "/a", "list": []string{"x"}, "runtime.handlers.a.path": "p"}
	after := map[string]any{"log.level": "debug", "root": "/a", "list": []string{"x", "y"}, "runtime.handlers.b.path": "p"}
	want := []string{"list", "log.level", "runtime.handlers.a.path", "runtime.handlers.b.path"}
	if d := cmp.Diff(want, changedKeys(before, after)); d != "" {
		t.Errorf("changedKeys(), -want +got:\n%s", d)
	}
	if changed := changedKeys(before, before); changed != nil {
		t.Errorf("changedKeys() of the same = %v, want none", changed)
	}
	if err := checkLive([]string{"log.level", "runtime.handlers.a.path"}); err != nil {
		t.Errorf("checkLive() = %v, want nil", err)
	}
	err := checkLive([]string{"listen", "log.level", "runtime.stats_interval"})
	if err == nil || !strings.Contains(err.Error(), "only a restart can change listen, runtime.stats_interval:") {
		t.Errorf("checkLive() = %v, want an error that names listen and runtime.stats_interval", err)
	}
}

// TestSameHandler: a handler is made anew if its table changed, or a key that all handlers use.
func TestSameHandler(t *testing.T) {
	a := defaultConfig()
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
		"search path":    {func(c *Config) { c.Runtime.SearchPath = []string{"/x"} }, false},
		"create timeout": {func(c *Config) { c.Runtime.CreateTimeout++ }, false},
		"kill timeout":   {func(c *Config) { c.Runtime.KillTimeout++ }, true},
	} {
		b := defaultConfig()
		c.change(&b)
		if got := sameHandler(&a, &b, "runc"); got != c.want {
			t.Errorf("%s: sameHandler() = %t, want %t", name, got, c.want)
		}
	}
}

// TestNoReloadWhileStopping: podd waits for a reload in progress, after which none begins.
func TestNoReloadWhileStopping(t *testing.T) {
	d, loads := &daemon{}, 0
	entered, leave := make(chan struct{}), make(chan struct{})
	d.load = func() (*loaded, error) {
		loads++
		close(entered)
		<-leave
		return nil, errors.New("broken")
	}
	d.log = logrus.New()
	d.current.Store(&generation{number: 1})
	ctx, cancel := context.WithCancel(t.Context())
	reloaded, awaited := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := d.reload(ctx, nil)
		reloaded <- err
	}()
	<-entered
	cancel()
	go func() {
		d.awaitReload()
		close(awaited)
	}()
	select {
	case <-awaited:
		t.Error("awaitReload() returned during a reload")
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	<-awaited
	if err := <-reloaded; err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("reload in progress = %v, want its own error", err)
	}
	if _, err := d.reload(ctx, nil); !errors.Is(err, context.Canceled) || loads != 1 {
		t.Errorf("reload of a podd that stops = %v after %d loads, want %v and one", err, loads, context.Canceled)
	}
}

// TestReloadCommand reloads a real daemon by command and by signal.
func TestReloadCommand(t *testing.T) {
	s := newSite(t)
	d := s.start(t, nil)
	reload := func() (string, int) {
		cmd := s.command("reload")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := reload(); code != 0 || out != "generation 2, nothing changed\n" {
		t.Errorf("reload = %q, %d, want generation 2, nothing changed", out, code)
	}
	s.config(t, "[log]\nlevel = \"debug\"\n[image]\npinned_images = [\"a\"]\n")
	if out, code := reload(); code != 0 || out != "generation 3, changed: image.pinned_images, log.level\n" {
		t.Errorf("reload = %q, %d, want generation 3 and the changed keys", out, code)
	}
	s.config(t, "[log]\nlevel = \"loud\"\n")
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, "failed to reload the configuration, keeping the present one")
	if out, code := reload(); code != exitFailure || !strings.Contains(out, "is not reloaded: log.level (") {
		t.Errorf("reload of a wrong file = %q, %d, want 1 and the key", out, code)
	}
	status, err := s.command("status").CombinedOutput()
	if err != nil || !strings.Contains(string(status), `configuration: generation 3, the last reload was refused: `) ||
		!strings.Contains(string(status), `"loud" is none of`) {
		t.Errorf("status = %v\n%s\nwant generation 3, and the error", err, status)
	}
	s.config(t, "[log]\nlevel = \"info\"\n")
	d.signal(t, syscall.SIGHUP)
	d.log.expect(t, `"generation":4`)
	status, err = s.command("status").CombinedOutput()
	if err != nil || !strings.Contains(string(status), "configuration: generation 4, loaded ") {
		t.Errorf("status = %v\n%s\nwant generation 4", err, status)
	}
}
