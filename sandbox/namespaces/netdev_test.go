package namespaces

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestOpenNetDev: the file shows the namespace's own interfaces, also those that came after it was opened.
func TestOpenNetDev(t *testing.T) {
	p, r := newPinner(t), Request{Net: filepath.Join(t.TempDir(), "net")}
	if err := p.Pin(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	f, err := OpenNetDev(r.Net)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := func() string {
		text := make([]byte, 4096)
		n, _ := f.ReadAt(text, 0)
		return string(text[:n])
	}
	if text := list(); !strings.Contains(text, "lo:") || strings.Count(text, "\n") != 3 {
		t.Errorf("a new namespace has\n%s", text)
	}
	inside(t, r, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth7"}})
	})
	if text := list(); !strings.Contains(text, "eth7:") {
		t.Errorf("a new interface is not in\n%s", text)
	}
	if own, err := os.ReadFile("/proc/net/dev"); err != nil || strings.Contains(string(own), "eth7:") {
		t.Errorf("this process is in the namespace now: %s, %v", own, err)
	}
	if err := p.Unpin(t.Context(), r.Net); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNetDev(r.Net); err == nil {
		t.Error("a namespace that is not pinned was opened")
	}
}
