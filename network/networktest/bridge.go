package networktest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/podd-project/podd/network"
)

// Bridge is a configuration directory for real plugins, with its own bridge, address ranges and state. At the end of
// the test the bridge is deleted and the node is checked for leaks.
type Bridge struct {
	t testing.TB
	// Name is the name of the network and of the bridge.
	Name string
	// ConfDir holds the configuration, DataDir host-local's addresses, StateDir the records.
	ConfDir, DataDir, StateDir string
	// Subnet4 and Subnet6 are the ranges, Gateway4 is the bridge's address.
	Subnet4, Subnet6, Gateway4 string
}

// NewBridge makes the directory; more are the plugins after the bridge.
func NewBridge(t testing.TB, cniVersion string, more ...string) *Bridge {
	t.Helper()
	NeedNode(t)
	sum := sha256.Sum256([]byte(t.Name()))
	b := &Bridge{
		t: t, Name: fmt.Sprintf("pt%x", sum[:4]), ConfDir: t.TempDir(), DataDir: t.TempDir(),
		StateDir: filepath.Join(t.TempDir(), "network"),
		Subnet4:  fmt.Sprintf("10.%d.%d.0/24", sum[4], sum[5]), Subnet6: fmt.Sprintf("fd00:%x:%x::/64", sum[4:6], sum[6:8]),
		Gateway4: fmt.Sprintf("10.%d.%d.1", sum[4], sum[5]),
	}
	CheckNode(t)
	CheckFiles(t, b.DataDir)
	CheckFiles(t, b.StateDir)
	t.Cleanup(b.delete)
	b.Write("10-bridge.conflist", cniVersion, more...)
	return b
}

// Write writes a configuration of the bridge and more plugins after it.
func (b *Bridge) Write(file, cniVersion string, more ...string) {
	b.t.Helper()
	plugins := fmt.Sprintf(`{"type":"bridge","bridge":%q,"isGateway":true,"ipMasq":true,"hairpinMode":true,
"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":%q}],[{"subnet":%q}]],
"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`,
		b.Name, b.DataDir, b.Subnet4, b.Subnet6)
	for _, p := range more {
		plugins += "," + p
	}
	text := fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[%s]}`, cniVersion, b.Name, plugins)
	if err := os.WriteFile(filepath.Join(b.ConfDir, file), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// Config returns a configuration of package network for the bridge.
func (b *Bridge) Config() network.Config {
	b.t.Helper()
	cfg := network.DefaultConfig()
	cfg.ConfDir, cfg.BinDirs = b.ConfDir, []string{Plugins(b.t)}
	return cfg
}

// delete removes the bridge, which plugins do not delete.
func (b *Bridge) delete() {
	link, err := netlink.LinkByName(b.Name)
	if err != nil {
		return // no pod was attached
	}
	if err := netlink.LinkDel(link); err != nil {
		b.t.Errorf("delete bridge: %v", err)
	}
}
