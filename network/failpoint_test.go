package network_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
	"github.com/podd-project/podd/network/networktest/failpoint"
)

// failNet is a network whose only plugin is failpoint.
type failNet struct {
	*network.CNI
	stateDir string
	cfg      network.Config
}

// startFailpoint starts a network with only the failpoint plugin; change may edit its configuration.
func startFailpoint(t testing.TB, bin string, p *failpoint.Plugin, version string,
	change func(*network.Config)) failNet {
	t.Helper()
	networktest.NeedNode(t)
	cfg := network.DefaultConfig()
	stateDir := filepath.Join(t.TempDir(), "network")
	cfg.ConfDir, cfg.BinDirs = t.TempDir(), []string{bin}
	if change != nil {
		change(&cfg)
	}
	conf := fmt.Sprintf(`{"cniVersion":%q,"name":"told","plugins":[%s]}`, version,
		p.Conf(`,"capabilities":{"portMappings":true,"dns":true,"bandwidth":true,"cgroupPath":true}`))
	if err := os.WriteFile(filepath.Join(cfg.ConfDir, "10.conflist"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	networktest.CheckFiles(t, stateDir)
	return failNet{start(t, stateDir, cfg), stateDir, cfg}
}

// breakState makes the state directory unwritable, even for root.
func (c failNet) breakState(t *testing.T) {
	t.Helper()
	if err := os.Remove(c.stateDir); err != nil {
		t.Fatal(err)
	}
}

func installFailpoint(t testing.TB) (bin string, p *failpoint.Plugin) {
	bin = t.TempDir()
	return bin, failpoint.Install(t, bin)
}

func TestHostilePluginsFailThePodOnly(t *testing.T) {
	tests := []struct{ name, action, want string }{
		{"error", failpoint.Fail, "set to fail"},
		{"crash", failpoint.Crash, "exit status 2: failpoint: set to crash"},
		{"garbage", failpoint.Print + "hello, world", "not a CNI result"},
		{"nothing", failpoint.Print, "not a CNI result"},
		{"100 MB", failpoint.Flood, "printed more than"},
		{"no addresses", failpoint.Print + `{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/x"}]}`,
			"has no address for the pod"},
		{"null", failpoint.Print + "null", "has no address for the pod"},
		{"list", failpoint.Print + "[]", "not a CNI result"},
		{"null addresses", failpoint.Print + `{"ips":[null]}`, "null interface, address or route"},
		{"address is text", failpoint.Print + `{"ips":[{"address":"$(reboot)"}]}`, "invalid CIDR"},
		{"loopback address", failpoint.Print + `{"ips":[{"address":"127.0.0.1/8"}]}`, "cannot be a pod's address"},
		{"deep", failpoint.Print + `{"x":` + strings.Repeat("[", 50000) + strings.Repeat("]", 50000) + `}`,
			"exceeded max depth"},
		{"version of the future", failpoint.Print + `{"cniVersion":"9.9.9","ips":[{"address":"10.0.0.2/24"}]}`, "9.9.9"},
		{"large", failpoint.Print + `{"x":"` + strings.Repeat("a", 300000) + `"}`, "more than"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bin, p := installFailpoint(t)
			c := startFailpoint(t, bin, p, "1.0.0", nil)
			p.Set("ADD", tt.action)
			result, err := c.Setup(t.Context(), request(t, "pod1"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 4096 {
				t.Fatalf("Setup = %v, %.300v, want an error with %q", result, err, tt.want)
			}
			if ids, err := c.Attachments(); err != nil || !slices.Equal(ids, []string{"pod1"}) {
				t.Errorf("Attachments = %v, %v, want [pod1]", ids, err)
			}
			teardown(t, c.CNI, "pod1")
			p.Set("ADD", failpoint.Succeed)
			setup(t, c.CNI, request(t, "pod1"))
			teardown(t, c.CNI, "pod1")
		})
	}
}

// TestMendedConf: a plugin that refuses a value of its configuration fails ADD and each DEL. The pod can be removed
// once that is mended. One that was attached is detached with the configuration of its ADD only.
func TestMendedConf(t *testing.T) {
	for of, own := range map[string]string{"node": "", "handler": t.TempDir()} {
		t.Run(of, func(t *testing.T) { testMendedConf(t, own) })
	}
}

// testMendedConf has the configuration in the directory own of the pod's handler, "" for that of the node.
func testMendedConf(t *testing.T, own string) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", nil)
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(bin, "picky"), `#!/bin/sh
if grep -q typo; then echo '{"code":7,"msg":"a typo"}'; exit 1; fi
echo '{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.8/24"}]}'
`, 0o755)
	conf := filepath.Join(cmp.Or(own, c.cfg.ConfDir), "10.conflist")
	configure := func(extra string) {
		t.Helper()
		write(conf, fmt.Sprintf(
			`{"cniVersion":"1.0.0","name":"told","plugins":[%s,{"type":"picky"%s}]}`, p.Conf(""), extra), 0o644)
	}
	pod := func(id string) network.Request {
		r := request(t, id)
		r.ConfDir = own
		return r
	}
	configure(`,"typo":1`)
	if _, err := c.Setup(t.Context(), pod("pod1")); err == nil || !strings.Contains(err.Error(), "a typo") {
		t.Errorf("Setup = %v, want the error of the plugin", err)
	}
	if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), "a typo") {
		t.Errorf("Teardown with the same configuration = %v, want the error of the plugin", err)
	}
	configure("")
	setup(t, c.CNI, pod("pod2"))
	teardown(t, c.CNI, "pod1")
	if calls := p.Calls("DEL"); len(calls) != 1 || calls[0].ContainerID != "pod1" {
		t.Errorf("calls of DEL of the first plugin = %v, want one for pod1", calls)
	}
	p.Set("DEL", failpoint.Fail)
	write(conf, `{"cniVersion":"1.0.0","name":"told","plugins":[{"type":"picky"}]}`, 0o644)
	if err := c.Teardown(t.Context(), "pod2"); err == nil {
		t.Error("Teardown of an attached pod with another configuration = nil, want the error of the plugin")
	}
	p.Set("DEL", failpoint.Succeed)
	teardown(t, c.CNI, "pod2")
}

func TestHangingPluginIsKilledAtTheDeadline(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", func(cfg *network.Config) {
		cfg.AddTimeout, cfg.DelTimeout = time.Second, time.Second
	})
	p.Set("ADD", failpoint.Hang)
	p.Set("DEL", failpoint.Hang)
	began := time.Now()
	if _, err := c.Setup(t.Context(), request(t, "pod1")); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("Setup = %v, want a deadline exceeded error", err)
	}
	if err := c.Teardown(t.Context(), "pod1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Teardown = %v, want context.DeadlineExceeded", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v, want at most 20s", took)
	}
	for _, call := range p.Calls("") {
		if err := unix.Kill(call.Pid, 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("signal 0 to the plugin of %s = %v, want ESRCH", call.Command, err)
		}
	}
	p.Set("DEL", failpoint.Succeed)
	patient := c.cfg
	patient.DelTimeout = time.Minute
	teardown(t, start(t, c.stateDir, patient), "pod1")
}

// TestHangingPluginHarmsNoOtherPod: containerd#4666, where one hanging plugin made the node NotReady.
func TestHangingPluginHarmsNoOtherPod(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.1.0", nil)
	p.Set("ADD", failpoint.Hang)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	stuck := request(t, "stuck")
	go func() {
		_, err := c.Setup(ctx, stuck)
		done <- err
	}()
	for len(p.Calls("ADD")) == 0 {
		time.Sleep(time.Millisecond)
	}
	p.Set("ADD", failpoint.Succeed)
	p.Set("STATUS", failpoint.Hang)
	if err := c.Ready(); err != nil {
		t.Errorf("Ready = %v, want nil", err)
	}
	setup(t, c.CNI, request(t, "other"))
	teardown(t, c.CNI, "other")
	if err := c.GC(t.Context(), living()); !errdefs.IsUnavailable(err) {
		t.Errorf("GC during an attachment = %v, want an unavailable error", err)
	}
	// A further call for the stuck pod waits no longer than its context.
	impatient, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := c.Teardown(impatient, "stuck"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Teardown = %v, want context.DeadlineExceeded", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Setup = %v, want context.Canceled", err)
	}
	teardown(t, c.CNI, "stuck")
}

// TestDelGetsWhatAddGot compares the plugin's arguments at ADD and DEL.
func TestDelGetsWhatAddGot(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", nil)
	r := request(t, "pod1")
	r.Ports = []network.PortMapping{{HostPort: 80, ContainerPort: 8080, Protocol: "tcp"}}
	r.DNS = network.DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc.local"}, Options: []string{"ndots:5"}}
	r.Bandwidth, r.CgroupPath = &network.Bandwidth{Egress: 1000}, "/kubepods/pod1"
	setup(t, c.CNI, r)
	if err := os.RemoveAll(c.cfg.ConfDir); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := network.New(c.stateDir, c.cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	teardown(t, again, "pod1")

	add, del := p.Calls("ADD")[0], p.Calls("DEL")[0]
	wantArgs := "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-pod1;" +
		"K8S_POD_INFRA_CONTAINER_ID=pod1;K8S_POD_UID=uid-pod1"
	if add.Args != wantArgs || add.IfName != "eth0" || add.ContainerID != "pod1" || add.Netns != r.Netns ||
		add.Path != bin {
		t.Errorf("ADD = %+v, want arguments %q of %+v", add, wantArgs, r)
	}
	if del.Args != add.Args || del.IfName != add.IfName || del.ContainerID != add.ContainerID || del.Netns != add.Netns {
		t.Errorf("DEL = %+v, want the values of ADD %+v", del, add)
	}
	before, after := stdin(t, add), stdin(t, del)
	if len(after["prevResult"]) == 0 {
		t.Error("DEL got no prevResult")
	}
	delete(after, "prevResult")
	for key, value := range before {
		if !bytes.Equal(value, after[key]) {
			t.Errorf("%s = %s at DEL, want that of ADD, %s", key, after[key], value)
		}
	}
	if want := `{"bandwidth":{"egressBurst":2147483647,"egressRate":1000},"cgroupPath":"/kubepods/pod1",` +
		`"dns":{"servers":["10.0.0.10"],"searches":["svc.local"],"options":["ndots:5"]},` +
		`"portMappings":[{"hostPort":80,"containerPort":8080,"protocol":"tcp"}]}`; canonical(t,
		before["runtimeConfig"]) != canonical(t, []byte(want)) {
		t.Errorf("runtimeConfig = %s, want %s", before["runtimeConfig"], want)
	}
}

// stdin returns the fields of the plugin's configuration, in a form that can be compared.
func stdin(t *testing.T, c failpoint.Call) map[string]json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(c.Stdin, &fields); err != nil {
		t.Fatal(err)
	}
	for key, value := range fields {
		fields[key] = json.RawMessage(canonical(t, value))
	}
	return fields
}

func canonical(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestDelWithoutNamespace: CNI requires an empty CNI_NETNS then.
func TestDelWithoutNamespace(t *testing.T) {
	bin, p := installFailpoint(t)
	meta := failpoint.Install(t, t.TempDir()) // called before p
	c := startFailpoint(t, bin, p, "1.0.0", func(cfg *network.Config) {
		conf := `{"cniVersion":"1.0.0","name":"two","plugins":[` + p.Conf("") + "," + meta.Conf("") + "]}"
		if err := os.WriteFile(filepath.Join(cfg.ConfDir, "05.conflist"), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	r := request(t, "pod1")
	setup(t, c.CNI, r)
	if err := unix.Unmount(r.Netns, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	meta.Set("DEL", failpoint.FailPrint+`{"code":999,"msg":"dial unix /run/x.sock: connect: no such file or directory"}`)
	if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), "x.sock") {
		t.Errorf("Teardown = %v, want the error of the plugin", err)
	}
	// A plugin that needs a namespace. The other one is called too.
	meta.Set("DEL", failpoint.FailPrint+
		`{"code":999,"msg":"failed to open netns \"\": failed to Statfs \"\": no such file or directory"}`)
	teardown(t, c.CNI, "pod1")
	if dels := p.Calls("DEL"); len(dels) != 1 || dels[0].Netns != "" {
		t.Errorf("DEL of the other plugin = %v, want one call without CNI_NETNS", dels)
	}
}

func TestMissingPlugin(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", nil)
	c.SetStatusTimes(10*time.Millisecond, 3*time.Second)
	setup(t, c.CNI, request(t, "pod1"))
	if err := os.Rename(filepath.Join(bin, failpoint.Name), filepath.Join(bin, "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Setup(t.Context(), request(t, "pod2")); !errdefs.IsUnavailable(err) ||
		!strings.Contains(err.Error(), `"failpoint" is not in`) {
		t.Errorf("Setup = %v, want an unavailable error that names the plugin", err)
	}
	if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), `"failpoint" is not in`) {
		t.Errorf("Teardown = %v, want an error that names the plugin", err)
	}
	for deadline := time.Now().Add(10 * time.Second); c.Ready() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("ready without a plugin")
		}
	}
	if err := os.Rename(filepath.Join(bin, "away"), filepath.Join(bin, failpoint.Name)); err != nil {
		t.Fatal(err)
	}
	waitReady(t, c.CNI)
	teardown(t, c.CNI, "pod1")
}

// TestUninstalledPlugin: pods end once a chained plugin is neither installed nor in the configuration.
func TestUninstalledPlugin(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.0.0", nil)
	chained := filepath.Join(bin, "chained")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(chained, []byte("#!/bin/sh\necho '{\"cniVersion\":\"1.0.0\",\"ips\":[{\"address\":"+
		"\"192.0.2.8/24\"}]}'\n"), 0o755))
	configure := func(more string) {
		t.Helper()
		must(os.WriteFile(filepath.Join(c.cfg.ConfDir, "10.conflist"), fmt.Appendf(nil,
			`{"cniVersion":"1.0.0","name":"told","plugins":[%s%s]}`, p.Conf(""), more), 0o644))
	}
	configure(`,{"type":"chained"}`)
	setup(t, c.CNI, request(t, "pod1"))
	must(os.Remove(chained))
	if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), `"chained" is not in`) {
		t.Errorf("Teardown = %v, want an error that names the plugin", err)
	}
	configure("")
	p.Set("DEL", failpoint.Fail)
	if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), "set to fail") {
		t.Errorf("Teardown = %v, want the error of the other plugin", err)
	}
	p.Set("DEL", failpoint.Succeed)
	teardown(t, c.CNI, "pod1")
	if calls := p.Calls("DEL"); len(calls) != 2 {
		t.Errorf("calls of DEL of the other plugin = %v, want two", calls)
	}
}

func TestReadyListensToStatus(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.1.0", nil)
	c.SetStatusTimes(10*time.Millisecond, 3*time.Second)
	for _, step := range []struct{ action, want string }{
		{failpoint.FailPrint + `{"code":50,"msg":"datastore is down"}`, "datastore is down"},
		{failpoint.Hang, "no answer within 3s"},
	} {
		p.Set("STATUS", step.action)
		var err error
		for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if err = c.Ready(); err != nil && strings.Contains(err.Error(), step.want) {
				break
			}
		}
		if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), step.want) {
			t.Errorf("Ready = %v, want %q", err, step.want)
		}
	}
	p.Set("STATUS", failpoint.Succeed)
	waitReady(t, c.CNI)
}

func TestGCTellsPluginsWhatIsValid(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.1.0", nil)
	for _, id := range []string{"keep", "lost", "broken"} {
		setup(t, c.CNI, request(t, id))
	}
	bad := filepath.Join(c.stateDir, "broken.json")
	if err := os.WriteFile(bad, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.GC(t.Context(), living("keep", "new")); err == nil || !strings.Contains(err.Error(), bad) {
		t.Errorf("GC = %v, want the broken record named", err)
	}
	if calls := p.Calls("DEL"); len(calls) != 1 || calls[0].ContainerID != "lost" {
		t.Errorf("calls of DEL = %+v, want one of pod lost", calls)
	}
	gc := p.Calls("GC")
	if len(gc) != 1 {
		t.Fatalf("%d calls of GC, want 1", len(gc))
	}
	// A pod whose DEL has failed must not be collected.
	want := `[{"containerID":"keep","ifname":"eth0"},{"containerID":"new","ifname":"eth0"},` +
		`{"containerID":"broken","ifname":"eth0"}]`
	if got := stdin(t, gc[0]); string(got["cni.dev/valid-attachments"]) != want {
		t.Errorf("valid attachments = %s, want %s", got["cni.dev/valid-attachments"], want)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	teardown(t, c.CNI, "keep")
	if err := c.GC(t.Context(), living()); err != nil {
		t.Error(err)
	}
	if got := stdin(t, p.Calls("GC")[1]); string(got["cni.dev/valid-attachments"]) != "[]" {
		t.Errorf("valid attachments without pods = %s, want []", got["cni.dev/valid-attachments"])
	}
}

// TestSetupStopsAHangingGC: collections must not run concurrently with attachments.
func TestSetupStopsAHangingGC(t *testing.T) {
	bin, p := installFailpoint(t)
	c := startFailpoint(t, bin, p, "1.1.0", nil)
	p.Set("GC", failpoint.Hang)
	done := make(chan error)
	go func() { done <- c.GC(t.Context(), living()) }()
	for len(p.Calls("GC")) == 0 {
		time.Sleep(time.Millisecond)
	}
	setup(t, c.CNI, request(t, "pod1"))
	if err := <-done; !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "being attached") {
		t.Errorf("GC = %v, want an unavailable error", err)
	}
	teardown(t, c.CNI, "pod1")
}

// living returns a function for GC.
func living(ids ...string) func() []string { return func() []string { return ids } }
