package network

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/sirupsen/logrus"
)

// quiet returns a logger for tests that do not check the log.
func quiet() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// testConfig has directories of its own and one plugin file named "fake".
func testConfig(t testing.TB) Config {
	t.Helper()
	dir := t.TempDir()
	cfg := DefaultConfig()
	cfg.ConfDir, cfg.BinDirs = filepath.Join(dir, "net.d"), []string{filepath.Join(dir, "bin")}
	for _, d := range []string{cfg.ConfDir, cfg.BinDirs[0]} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(cfg.BinDirs[0], "fake"), "not started")
	if err := os.Chmod(filepath.Join(cfg.BinDirs[0], "fake"), 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// stateDir returns the state directory of a CNI with a testConfig.
func stateDir(cfg Config) string { return filepath.Join(filepath.Dir(cfg.ConfDir), "state") }

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fakeConf returns a configuration with one plugin "fake".
func fakeConf(cniVersion, name string) string {
	return fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[{"type":"fake","capabilities":{"portMappings":true}}]}`,
		cniVersion, name)
}

// fakeExec replaces the execution of plugins in libcni.
type fakeExec struct {
	version.PluginDecoder
	onAdd  func(stdin, stdout []byte) error
	answer func(ctx context.Context, command string, stdin []byte) ([]byte, error)
}

func (f *fakeExec) FindInPath(plugin string, paths []string) (string, error) {
	return (&executor{}).FindInPath(plugin, paths)
}

func (f *fakeExec) ExecPlugin(ctx context.Context, _ string, stdin []byte, environ []string) ([]byte, error) {
	i := slices.IndexFunc(environ, func(s string) bool { return strings.HasPrefix(s, "CNI_COMMAND=") })
	command := strings.TrimPrefix(environ[i], "CNI_COMMAND=")
	out, err := f.answer(ctx, command, stdin)
	if err == nil && command == "ADD" && f.onAdd != nil {
		err = f.onAdd(stdin, out)
	}
	return out, err
}

// newFakeCNI returns a CNI whose plugins are replaced by answer. It has no background goroutines.
func newFakeCNI(
	t testing.TB, cfg Config, answer func(ctx context.Context, command string, stdin []byte) ([]byte, error),
) *CNI {
	t.Helper()
	c, err := newCNI(stateDir(cfg), cfg, quiet())
	if err != nil {
		t.Fatal(err)
	}
	c.newExec = withOnAdd(&fakeExec{answer: answer})
	return c
}

// withOnAdd makes exec the executor of every operation.
func withOnAdd(exec *fakeExec) func(execOptions) invoke.Exec {
	return func(o execOptions) invoke.Exec {
		return &fakeExec{onAdd: o.onAdd, answer: exec.answer}
	}
}

// testRecord returns a record like Setup's.
func testRecord(t testing.TB, podID string) *record {
	t.Helper()
	list, err := parseConf([]byte(fakeConf("1.0.0", "net")))
	if err != nil {
		t.Fatal(err)
	}
	if list, err = flatten(list); err != nil {
		t.Fatal(err)
	}
	r := newRecord(Request{PodID: podID, PodName: "web", PodNamespace: "default", Netns: "/run/netns/" + podID,
		Ports: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp"}}}, list)
	t.Cleanup(func() { _ = r.syncs.Wait() }) // before the directory is removed
	return r
}

func TestConfigValidate(t *testing.T) {
	good := DefaultConfig()
	good.Validate(func(key string, err error) { t.Errorf("Validate of the default configuration: %s: %v", key, err) })
	for name, spoil := range map[string]func(*Config){
		"no conf dir":          func(c *Config) { c.ConfDir = "" },
		"relative conf dir":    func(c *Config) { c.ConfDir = "net.d" },
		"relative template":    func(c *Config) { c.ConfTemplate = "x.tmpl" },
		"no bin dirs":          func(c *Config) { c.BinDirs = nil },
		"relative bin dir":     func(c *Config) { c.BinDirs = []string{"bin"} },
		"bin dir with colon":   func(c *Config) { c.BinDirs = []string{"/a:/b"} },
		"preference":           func(c *Config) { c.IPPreference = "ipv5" },
		"no add timeout":       func(c *Config) { c.AddTimeout = 0 },
		"negative del timeout": func(c *Config) { c.DelTimeout = -time.Second },
	} {
		c := good
		spoil(&c)
		var wrong []string
		c.Validate(func(key string, _ error) { wrong = append(wrong, key) })
		if len(wrong) != 1 {
			t.Errorf("%s: Validate reports %q, want one key", name, wrong)
		}
	}
}

func TestNewSweepsTemporaryRecords(t *testing.T) {
	cfg := testConfig(t)
	if err := os.Mkdir(stateDir(cfg), 0o700); err != nil {
		t.Fatal(err)
	}
	leftover := filepath.Join(stateDir(cfg), ".tmp-pod.json-1")
	write(t, leftover, "half")
	c := newFakeCNI(t, cfg, nil)
	if _, err := os.Stat(leftover); err == nil {
		t.Error("a temporary file was left")
	}
	if err := c.writeRecord(testRecord(t, "pod.1")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(stateDir(cfg), "pod-2.json"), "rubbish")
	write(t, filepath.Join(stateDir(cfg), "note.txt"), "not a record")
	if ids, err := c.Attachments(); err != nil || !slices.Equal(ids, []string{"pod-2", "pod.1"}) {
		t.Errorf("Attachments = %q, %v, want [pod-2 pod.1]", ids, err)
	}
}

// TestCapabilitiesReachThePluginThatKnowsThem tests libcni as much as this package: other plugins do not get them.
func TestCapabilitiesReachThePluginThatKnowsThem(t *testing.T) {
	cfg := testConfig(t)
	var got struct {
		RuntimeConfig map[string]json.RawMessage `json:"runtimeConfig"`
	}
	c := newFakeCNI(t, cfg, func(_ context.Context, _ string, stdin []byte) ([]byte, error) {
		return []byte(`{"ips":[{"address":"10.0.0.2/24"}]}`), json.Unmarshal(stdin, &got)
	})
	r := testRecord(t, "pod1")
	r.Capabilities["dns"] = DNS{Servers: []string{"1.1.1.1"}}
	if _, err := c.add(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	want := `[{"hostPort":8080,"containerPort":80,"protocol":"tcp"}]`
	if len(got.RuntimeConfig) != 1 || string(got.RuntimeConfig["portMappings"]) != want {
		t.Errorf("runtimeConfig = %s, want portMappings %s only", got.RuntimeConfig, want)
	}
}

func TestCapabilities(t *testing.T) {
	full := Request{
		Ports: []PortMapping{{HostPort: 1, ContainerPort: 2, Protocol: "udp", HostIP: "10.0.0.1"}},
		DNS:   DNS{Searches: []string{"a"}}, Bandwidth: &Bandwidth{Ingress: 1000}, CgroupPath: "/kubepods/x",
	}
	got, err := json.Marshal(full.capabilities())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"bandwidth":{"ingressBurst":2147483647,"ingressRate":1000},"cgroupPath":"/kubepods/x",` +
		`"dns":{"searches":["a"]},"portMappings":[{"hostPort":1,"containerPort":2,"protocol":"udp","hostIP":"10.0.0.1"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if c := (Request{}).capabilities(); len(c) != 0 {
		t.Errorf("capabilities of an empty request = %v, want none", c)
	}
}

func TestListForDelCarriesTheResult(t *testing.T) {
	r := testRecord(t, "pod1")
	r.Result = json.RawMessage(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}`)
	list, err := r.listForDel()
	if err != nil {
		t.Fatal(err)
	}
	prev := func(l *libcni.NetworkConfigList) string {
		var c struct{ PrevResult json.RawMessage }
		if err := json.Unmarshal(l.Plugins[0].Bytes, &c); err != nil {
			t.Fatal(err)
		}
		return string(c.PrevResult)
	}
	if got := prev(list); got != string(r.Result) {
		t.Errorf("prevResult = %s, want %s", got, r.Result)
	}
	if got := prev(r.list); got != "" {
		t.Errorf("prevResult in the record's own list = %s, want none", got)
	}
	r.list.CNIVersion = "0.3.1" // DEL had no prevResult before 0.4.0
	if list, err = r.listForDel(); err != nil || prev(list) != "" {
		t.Errorf("prevResult with CNI 0.3.1 = %s, %v, want none", prev(list), err)
	}
}
