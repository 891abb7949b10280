package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	logtest "github.com/sirupsen/logrus/hooks/test"
)

// launchedPlugin is a plugin that podd launches: it gives containers its configuration as a variable, and dies if a
// container has the label die.
type launchedPlugin struct{ config string }

func (p *launchedPlugin) Configure(_ context.Context, config, _, _ string) (stub.EventMask, error) {
	p.config = config
	return 0, nil
}

func (p *launchedPlugin) CreateContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if c.GetLabels()["die"] != "" {
		os.Exit(3)
	}
	a := &api.ContainerAdjustment{}
	a.AddEnv("LAUNCHED", p.config)
	return a, nil, nil
}

func runLaunched() int {
	s, err := stub.New(&launchedPlugin{})
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "plugin has ended:", err)
	return 1
}

// install puts the test binary into the plugin directory.
func install(t *testing.T, c *Config, name string, mode os.FileMode) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.PluginDir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.PluginDir, name)
	if err := os.WriteFile(path, self, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestLaunchedPlugins(t *testing.T) {
	n := newNode(t, nil, func(c *Config) {
		install(t, c, "20-launched", 0o755)
		install(t, c, "30-writable", 0o777)
		install(t, c, "noindex", 0o755)
		if err := os.WriteFile(filepath.Join(c.ConfigDir, "launched.conf"), []byte("x=1"), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	connected := func() bool { return len(n.Status().Plugins) == 1 }
	waitFor(t, "the plugin", connected)
	create := func(c Creation) string {
		if _, err := n.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return c.Spec.Process.Env[len(c.Spec.Process.Env)-1]
	}
	if got := create(newCreation("c1")); got != "LAUNCHED=x=1" {
		t.Errorf("last variable = %q, want that of the plugin with its configuration", got)
	}
	// It dies in the middle of a request, which proceeds without it, and is started again.
	deadly := newCreation("c2")
	deadly.Container.Config.Labels = map[string]string{"die": "1"}
	first := n.Status().Plugins[0].Pid
	if got := create(deadly); got != "KEEP=1" {
		t.Errorf("last variable = %q, want that of the request", got)
	}
	waitFor(t, "the plugin to be started again", func() bool {
		s := n.Status()
		return len(s.Plugins) == 1 && s.Plugins[0].Pid != first && len(s.Down) == 0
	})
	if got := create(newCreation("c3")); got != "LAUNCHED=x=1" {
		t.Errorf("last variable after the plugin's restart = %q, want that of the plugin", got)
	}
	if calls := n.Status().Calls["20-launched"]; len(calls) == 0 || calls[0].Verb != "CreateContainer" ||
		calls[0].Total != 3 || calls[0].Failed != 1 {
		t.Errorf("calls = %+v, want 3 of CreateContainer, 1 failed", calls)
	}
}

// TestProgramThatDoesNotConnect: it is killed and started again, and has nothing of podd's environment.
func TestProgramThatDoesNotConnect(t *testing.T) {
	t.Setenv("PODD_SECRET", "x")
	dir := t.TempDir()
	newNode(t, nil, func(c *Config) {
		c.RegistrationTimeout = 100 * time.Millisecond
		script := "#!/bin/sh\nenv >>" + dir + "/env\necho started >>" + dir + "/starts\nexec sleep 1000\n"
		err := errors.Join(os.MkdirAll(c.PluginDir, 0o755),
			os.WriteFile(filepath.Join(c.PluginDir, "10-silent"), []byte(script), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	})
	waitFor(t, "the program to be started again", func() bool {
		starts, _ := os.ReadFile(filepath.Join(dir, "starts"))
		return strings.Count(string(starts), "started") > 1
	})
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	text := string(env)
	if err != nil || strings.Contains(text, "PODD_SECRET") || !strings.Contains(text, "NRI_PLUGIN_NAME=silent") {
		t.Errorf("environment of the program: %v:\n%s\nwant the plugin's name, and nothing of podd's", err, text)
	}
}

// TestPluginPrograms: which files of the plugin directory are started.
func TestPluginPrograms(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"10-good": "#!/bin/sh\n", "20-wasm": "\x00asm\x01\x00\x00\x00", "30-notexecutable": "x", "noindex": "x",
		"40-writable": "#!/bin/sh\n",
	} {
		mode := map[string]os.FileMode{"30-notexecutable": 0o644, "40-writable": 0o775}[name]
		if mode == 0 {
			mode = 0o755
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "50-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	unusable := 3
	if os.Geteuid() == 0 {
		unusable++
		foreign := filepath.Join(dir, "60-foreign")
		err := errors.Join(os.WriteFile(foreign, []byte("#!/bin/sh\n"), 0o755), os.Chown(foreign, 65534, 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	log, lines := logtest.NewNullLogger()
	list := New(Config{PluginDir: dir}, "", log).installed()
	if len(list) != 1 || list[0].name != "10-good" {
		t.Errorf("%d programs %v, want 10-good only", len(list), list)
	}
	if got := len(lines.AllEntries()); got != unusable {
		t.Errorf("%d lines of the log, want one for each of 20-wasm, 40-writable, noindex and 60-foreign", got)
	}
	for i := range maxPlugins {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("70-%d", i)), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if list := New(Config{PluginDir: dir}, "", log).installed(); len(list) != maxPlugins {
		t.Errorf("%d of %d programs, want %d", len(list), maxPlugins+1, maxPlugins)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	lines.Reset()
	if list := New(Config{PluginDir: dir}, "", log).installed(); list != nil || len(lines.AllEntries()) != 1 {
		t.Errorf("programs of a directory in which others can put some = %v, %d lines of the log, want none and 1",
			list, len(lines.AllEntries()))
	}
	if list := New(Config{PluginDir: filepath.Join(dir, "absent")}, "", log).installed(); list != nil {
		t.Errorf("programs of a directory that does not exist = %v, want none", list)
	}
}

// TestPluginConfiguration: the file with the index comes first; what is no file of bounded size is an error.
func TestPluginConfiguration(t *testing.T) {
	dir := t.TempDir()
	log, _ := logtest.NewNullLogger()
	p := New(Config{ConfigDir: dir}, "", log)
	read := func(name, want string) {
		t.Helper()
		if got, err := p.readConfig(name); err != nil || got != want {
			t.Errorf("readConfig(%s) = %q, %v, want %q", name, got, err, want)
		}
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read("10-a", "")
	write("a.conf", "general")
	read("10-a", "general")
	write("10-a.conf", "special")
	read("10-a", "special")
	read("11-a", "general")
	write("b.conf", strings.Repeat("x", configLimit+1))
	if err := os.Mkdir(filepath.Join(dir, "c.conf"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"10-b", "10-c"} {
		if _, err := p.readConfig(name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("readConfig(%s) = %v, want an invalid argument", name, err)
		}
	}
}

// TestPluginOutput: each line of a plugin is a line of the log, and a long one is several.
func TestPluginOutput(t *testing.T) {
	log, lines := logtest.NewNullLogger()
	l := &lineLog{log: log}
	for _, text := range []string{"one\ntw", "o\n", strings.Repeat("x", outputLine+5), "\nlast"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("Write = %d, %v, want %d", n, err, len(text))
		}
	}
	var got []string
	for _, e := range lines.AllEntries() {
		got = append(got, fmt.Sprint(e.Data["output"]))
	}
	want := []string{"one", "two", strings.Repeat("x", outputLine), "xxxxx"}
	if !slices.Equal(got, want) {
		t.Errorf("logged %.200q, want %.200q", got, want)
	}
}
