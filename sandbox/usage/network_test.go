package usage

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const netDev = `Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 1000 10 0 0 0 0 0 0 1000 10 0 0 0 0 0 0
  net1: 18446744073709551615 1 2 3 0 0 0 0 4 5 6 7 0 0 0 0
  eth0: 101 102 103 104 0 0 0 0 201 202 203 204 0 0 0 0
broken: 1 2 3
`

func TestNetworkUsage(t *testing.T) {
	var u Network
	u.parse([]byte(netDev))
	want := Interface{
		Name:      "eth0",
		RxBytes:   101,
		RxPackets: 102,
		RxErrors:  103,
		RxDropped: 104,
		TxBytes:   201,
		TxPackets: 202,
		TxErrors:  203,
		TxDropped: 204,
	}
	if u.Default == nil || *u.Default != want {
		t.Errorf("default %+v", u.Default)
	}
	if len(u.Others) != 1 || u.Others[0].Name != "net1" || u.Others[0].RxBytes != 1<<64-1 || u.Others[0].TxDropped != 7 {
		t.Errorf("others %+v", u.Others)
	}
	u = Network{}
	u.parse([]byte(strings.ReplaceAll(netDev, "eth0", "ens5")))
	if u.Default == nil || u.Default.Name != "net1" || len(u.Others) != 1 || u.Others[0].Name != "ens5" {
		t.Errorf("without eth0: %+v, %+v", u.Default, u.Others)
	}
	u = Network{}
	u.parse([]byte(strings.SplitAfter(netDev, "\n")[2]))
	if u.Default != nil || u.Others != nil {
		t.Errorf("loopback alone: %+v", u)
	}
}

// TestHostileInterfaces: what a privileged container makes must not harm the answer for other pods.
func TestHostileInterfaces(t *testing.T) {
	var text strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&text, "  x%d: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n", i)
	}
	text.WriteString("\xff\xfe: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n")
	var u Network
	u.parse([]byte(text.String()))
	if u.Default == nil || u.Default.Name != "eth0" || len(u.Others) != maxInterfaces {
		t.Errorf("default %v, %d others", u.Default, len(u.Others))
	}
	u = Network{}
	u.parse([]byte("\xff: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n"))
	if u.Default != nil || len(u.Others) != 0 {
		t.Errorf("got %+v", u)
	}
}

// FuzzNetDev: interfaces have names that containers choose.
func FuzzNetDev(f *testing.F) {
	f.Add([]byte(netDev))
	f.Fuzz(func(t *testing.T, text []byte) {
		var u Network
		u.parse(text)
		for _, i := range u.Others {
			if i.Name == "lo" || u.Default == nil || !utf8.ValidString(i.Name) {
				t.Errorf("%+v", u)
			}
		}
	})
}

// TestNetworkGauge: the file is opened once, read from its start each time, and let go.
func TestNetworkGauge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dev")
	must(t, os.WriteFile(path, []byte(netDev), 0o600))
	opened := 0
	g := &networkGauge{open: func() (*os.File, error) { opened++; return os.Open(path) }}
	for range 3 {
		u, err := g.measure(nil, Want{})
		must(t, err)
		if u.Default.RxBytes != 101 {
			t.Errorf("got %+v", u)
		}
	}
	file := g.file
	g.close()
	g.close()
	if _, err := io.ReadAll(file); opened != 1 || err == nil {
		t.Errorf("opened %d times, read after close: %v", opened, err)
	}
	g.open = func() (*os.File, error) { return nil, os.ErrNotExist }
	if _, err := g.measure(nil, Want{}); err == nil {
		t.Error("a namespace that is gone was measured")
	}
}
