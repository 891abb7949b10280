package network_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/network"
	"github.com/podd-project/podd/network/networktest"
)

// TestAbandon: the record is truncated, empty, or gone. It uses the real plugins and checks the node for leaks.
func TestAbandon(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"truncated": func(path string) error { return os.Truncate(path, 100) },
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"gone":      os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			b := networktest.NewBridge(t, "1.0.0", portmap, firewall)
			c := start(t, b.StateDir, b.Config())
			r := request(t, "pod1")
			r.Ports = []network.PortMapping{{HostPort: 18082, ContainerPort: 8080, Protocol: "tcp", HostIP: "127.0.0.1"}}
			result := setup(t, c, r)
			leases, err := c.Leases()
			if err != nil || len(leases["pod1"]) != len(result.IPs) {
				t.Errorf("leases %v, %v, want %v", leases, err, result.IPs)
			}
			if err := damage(filepath.Join(b.StateDir, "pod1.json")); err != nil {
				t.Fatal(err)
			}
			if err := c.Teardown(t.Context(), "pod1"); name != "gone" && !errors.Is(err, network.ErrDamaged) {
				t.Errorf("Teardown = %v, want ErrDamaged", err)
			}
			if err := c.Abandon(t.Context(), r); err != nil {
				t.Error(err)
			}
			if err := c.Abandon(t.Context(), r); err != nil {
				t.Errorf("second Abandon = %v, want no error", err)
			}
			if leases, err := c.Leases(); err != nil || len(leases) > 0 {
				t.Errorf("leases afterwards = %v, %v, want none", leases, err)
			}
			if ids, err := c.Attachments(); err != nil || len(ids) > 0 {
				t.Errorf("attachments afterwards = %v, %v, want none", ids, err)
			}
			kept, err := os.ReadDir(filepath.Join(b.StateDir, "damaged"))
			if name != "gone" && len(kept) != 1 {
				t.Errorf("kept records = %v, %v, want one", kept, err)
			}
			if err := os.RemoveAll(filepath.Join(b.StateDir, "damaged")); err != nil {
				t.Error(err)
			}
		})
	}
}
