package settings

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
)

// tree writes files to a new directory and returns the path of podd.toml in it.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "podd.toml")
}

// load reads the configuration as the daemon would.
func load(t testing.TB, args ...string) (*Loaded, error) {
	t.Helper()
	var f Flags
	set := pflag.NewFlagSet("podd", pflag.ContinueOnError)
	f.Register(set)
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Load()
}

func TestConfigFilesAndFlagsAreMerged(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": "root = \"/srv/podd\"\n[log]\nlevel = \"debug\"\nformat = \"json\"\n" +
			"[runtime]\nsearch_path = [\"/a\", \"/b\"]\n",
		"podd.toml.d/20-b.toml": "[log]\nlevel = \"error\"\n[runtime.handlers.kata]\npath = \"/opt/kata\"\n",
		"podd.toml.d/10-a.toml": "[log]\nlevel = \"trace\"\n[runtime]\nsearch_path = [\"/c\"]\n" +
			"[runtime.handlers.kata]\nroot = \"/run/kata\"\n",
		"podd.toml.d/30.toml.bak": "nonsense",
		"podd.toml.d/.30.toml":    "nonsense",
		"podd.toml.d/README":      "nonsense",
	})
	l, err := load(t, "--config", file, "--run", "/run/x", "--set", "runtime.kill_timeout=7s",
		"--set", "runtime.handlers.runc.path=/usr/bin/runc")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Listen = "/run/x/podd.sock"
	want.Log = LogConfig{Level: "error", Format: "json"}
	want.Root, want.Run = "/srv/podd", "/run/x"
	want.Network.NetnsDir = "/run/x/netns" // only the default run directory has the shared one
	want.NRI.Socket = "/run/x/nri/nri.sock"
	want.Metrics.Address = "unix:///run/x/metrics.sock"
	want.Image.PreloadDir = "/srv/podd/preload"
	want.Runtime.SearchPath = []string{"/c"}
	want.Runtime.KillTimeout = 7 * time.Second
	want.Runtime.Handlers["kata"] = HandlerTable{Path: "/opt/kata", Root: "/run/kata"}
	want.Runtime.Handlers["runc"] = HandlerTable{Path: "/usr/bin/runc"}
	if d := cmp.Diff(want, l.Config); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	dir := filepath.Dir(file)
	for key, origin := range map[string]string{
		"root":                       file + ":1",
		"run":                        "flag --run",
		"listen":                     "default",
		"log.level":                  filepath.Join(dir, "podd.toml.d/20-b.toml") + ":2",
		"log.format":                 file + ":4",
		"runtime.search_path":        filepath.Join(dir, "podd.toml.d/10-a.toml") + ":4",
		"runtime.kill_timeout":       "flag --set",
		"runtime.create_timeout":     "default",
		"runtime.handlers.kata.root": filepath.Join(dir, "podd.toml.d/10-a.toml") + ":6",
		"runtime.handlers.kata.path": filepath.Join(dir, "podd.toml.d/20-b.toml") + ":4",
		"runtime.handlers.runc.path": "flag --set",
	} {
		if got := l.set.Origin(key); got != origin {
			t.Errorf("origin of %s: got %q, want %q", key, got, origin)
		}
	}
	files := []string{file, filepath.Join(dir, "podd.toml.d/10-a.toml"), filepath.Join(dir, "podd.toml.d/20-b.toml")}
	if d := cmp.Diff(files, l.Files); d != "" {
		t.Errorf("files: -want +got:\n%s", d)
	}
}

func TestFlagsOverrideFiles(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": "root = \"/f/root\"\nrun = \"/f/run\"\nlisten = \"/f/l.sock\"\n" +
			"log = {level = \"error\", format = \"json\"}\n",
	})
	l, err := load(t, "--config", file, "--root", "/o/root", "--run", "/o/run", "--listen", "unix:///o/l.sock",
		"--log-level", "debug", "--log-format", "text")
	if err != nil {
		t.Fatal(err)
	}
	got := []string{l.Root, l.Run, l.Listen, l.Log.Level, l.Log.Format}
	if d := cmp.Diff([]string{"/o/root", "/o/run", "/o/l.sock", "debug", "text"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestNoFileIsTheDefaults(t *testing.T) {
	l := &Loaded{Config: Default()}
	if err := l.readFiles(filepath.Join(t.TempDir(), "none.toml"), false); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Default(), l.Config); d != "" || len(l.Files) != 0 {
		t.Errorf("files %v, -want +got:\n%s", l.Files, d)
	}
	if err := l.readFiles(filepath.Join(t.TempDir(), "none.toml"), true); err == nil {
		t.Error("readFiles() of a required file that is missing succeeded, want an error")
	}
}

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	if wrong := c.validate(func(string) string { return "default" }); len(wrong) > 0 {
		t.Errorf("validate = %q, want no error", wrong)
	}
}

func TestDefaultConfigChangesNothingAndIsTrue(t *testing.T) {
	var document strings.Builder
	if err := WriteDefault(&document); err != nil {
		t.Fatal(err)
	}
	out := document.String()
	uncommented := regexp.MustCompile(`(?m)^#([a-z_]+ = )`).ReplaceAllString(out, "$1")
	if uncommented == out {
		t.Fatal("no key found")
	}
	for name, text := range map[string]string{"as printed": out, "uncommented": uncommented} {
		l, err := load(t, "--config", tree(t, map[string]string{"podd.toml": text}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := Default()
		if d := cmp.Diff(want, l.Config, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// FuzzConfig: no pair of files makes the loading panic, and an accepted configuration is valid.
func FuzzConfig(f *testing.F) {
	f.Add("root = \"/a\"", "[log]\nlevel = \"debug\"")
	f.Add("[runtime.handlers.x]", "runtime.search_path = []")
	f.Add("[runtime]\nkill_timeout = \"1m\"", "listen = \"/x\"")
	f.Fuzz(func(t *testing.T, file, dropIn string) {
		l, err := load(t, "--config", tree(t, map[string]string{"podd.toml": file, "podd.toml.d/a.toml": dropIn}))
		if err != nil {
			if !errors.As(err, &Error{}) {
				t.Errorf("not a configuration error: %v", err)
			}
			return
		}
		for _, path := range []string{l.Root, l.Run, l.Listen} {
			if !filepath.IsAbs(path) || path == "/" {
				t.Errorf("%q was accepted", path)
			}
		}
		if l.Runtime.KillTimeout <= 0 {
			t.Errorf("kill_timeout %v was accepted", l.Runtime.KillTimeout)
		}
	})
}

// TestDump: the dump of a configuration is a file with that configuration.
func TestDump(t *testing.T) {
	first, err := load(t, "--run", "/run/other", "--config", tree(t, map[string]string{
		"podd.toml": "[log]\nlevel = \"debug\"\n[runtime.handlers.kata]\npath = \"/opt/kata\"\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := first.Dump(&out); err != nil {
		t.Fatal(err)
	}
	second, err := load(t, "--config", tree(t, map[string]string{"podd.toml": out.String()}))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(first.Config, second.Config, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("configuration of the dump, -want +got:\n%s", d)
	}
}
