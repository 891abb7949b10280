package network

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podd-project/podd/network/reference"
)

var update = flag.Bool("update", false, "write testdata/attachment-v<format>.json as this version writes it")

const goldenPod = "golden"

func goldenRecord(t *testing.T) *record {
	t.Helper()
	list, err := parseConf([]byte(`{"cniVersion":"1.0.0","name":"net","plugins":[
{"type":"bridge","bridge":"cni0","ipMasq":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/16"}]]}},
{"type":"portmap","capabilities":{"portMappings":true}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if list, err = flatten(list); err != nil {
		t.Fatal(err)
	}
	r := newRecord(Request{
		PodID: goldenPod, PodName: "web", PodNamespace: "default", PodUID: "uid-1", Netns: "/run/podd/netns/golden",
		Ports: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "127.0.0.1"}},
		DNS:   DNS{Servers: []string{"10.0.0.10"}}, Bandwidth: &Bandwidth{Ingress: 1000}, CgroupPath: "/kubepods/pod1",
	}, list)
	r.Result = json.RawMessage(`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/podd/netns/golden"}],` +
		`"ips":[{"address":"10.1.2.3/16","interface":0}]}`)
	return r
}

// TestAttachmentsOfEveryReleaseAreRead: testdata has a record of every format that was released. The newest is, byte
// for byte, what this version writes.
func TestAttachmentsOfEveryReleaseAreRead(t *testing.T) {
	c := cniWith(t.TempDir())
	if err := c.writeRecord(goldenRecord(t)); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(c.recordPath(goldenPod))
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", fmt.Sprintf("attachment-v%d.json", recordVersion))
	if *update {
		if err := os.WriteFile(golden, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	released, err := os.ReadFile(golden)
	if diff := cmp.Diff(string(released), string(written)); err != nil || diff != "" {
		t.Errorf("the record is not written as it was released (%v). If an older podd can read it, "+
			"run the test with -update; if not, raise recordVersion first.\n%s", err, diff)
	}
	releases, err := filepath.Glob("testdata/attachment-v*.json")
	if err != nil || len(releases) < recordVersion {
		t.Fatalf("released records = %v, %v, want at least %d", releases, err, recordVersion)
	}
	for _, release := range releases {
		data, err := os.ReadFile(release)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.recordPath(goldenPod), data, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := c.readRecord(goldenPod)
		if err != nil {
			t.Errorf("readRecord of %s = %v, want no error", release, err)
			continue
		}
		if prefixes := r.prefixes(); len(r.list.Plugins) != 2 || len(r.Args) != 5 || len(r.Capabilities) != 4 ||
			len(prefixes) != 1 || !reference.Masquerades(r.list) {
			t.Errorf("readRecord of %s = %+v, want 2 plugins, 5 arguments, 4 capabilities, 1 address", release, r)
		}
	}
}

// cniWith returns a CNI that has nothing but a state directory and an empty configuration.
func cniWith(stateDir string) *CNI {
	c := &CNI{stateDir: stateDir, sync: func(string) error { return nil }}
	c.settings.Store(&Config{})
	return c
}
