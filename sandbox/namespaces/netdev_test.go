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
		t.Errorf("interfaces of a new namespace:\n%s\nwant lo alone", text)
	}
	inside(t, r, func() error {
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "eth7"}})
	})
	if text := list(); !strings.Contains(text, "eth7:") {
		t.Errorf("interfaces:\n%s\nwant eth7 among them", text)
	}
	if own, err := os.ReadFile("/proc/net/dev"); err != nil || strings.Contains(string(own), "eth7:") {
		t.Errorf("interfaces of this process:\n%s\n%v, want no eth7", own, err)
	}
	if err := p.Unpin(t.Context(), r.Net); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNetDev(r.Net); err == nil {
		t.Error("OpenNetDev of a namespace that is not pinned: no error")
	}
}
