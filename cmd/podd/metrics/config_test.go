package metrics

import (
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address string
		remote  bool
		want    string // part of the error, "" for none
	}{
		{"", false, ""},
		{"unix:///run/podd/metrics.sock", false, ""},
		{"127.0.0.1:9478", false, ""},
		{"127.1.2.3:9478", false, ""},
		{"[::1]:9478", false, ""},
		{"192.0.2.1:9478", true, ""},
		{"[::]:9478", true, ""},
		{"192.0.2.1:9478", false, "other machines can reach 192.0.2.1"},
		{"0.0.0.0:9478", false, "other machines can reach"},
		{"[::]:9478", false, "other machines can reach"},
		{"[::ffff:192.0.2.1]:9478", false, "other machines can reach"},
		{":9478", false, `"" is not an IP address`},
		{"localhost:9478", false, "not an IP address"},
		{"127.0.0.1", false, "neither unix:///path nor"},
		{"127.0.0.1:0", false, "not a port"},
		{"127.0.0.1:65536", false, "not a port"},
		{"127.0.0.1:http", false, "not a port"},
		{"http://127.0.0.1:9478", false, "neither unix:///path nor"},
		{"unix://run/podd.sock", false, "not the clean absolute path"},
		{"unix:///", false, "not the clean absolute path"},
		{"unix:///a/../b", false, "not the clean absolute path"},
		{"unix:///a\nb", false, "control character"},
		{"unix:///" + strings.Repeat("x", 107), false, "longer than the 107 bytes"},
		{"/run/podd/metrics.sock", false, "neither unix:///path nor"},
	} {
		var wrong []string
		Config{Address: c.address, AllowRemote: c.remote}.Validate(func(key string, err error) {
			wrong = append(wrong, key+": "+err.Error())
		})
		failed := len(wrong) == 1 && strings.Contains(wrong[0], c.want) && strings.HasPrefix(wrong[0], "address: ")
		if c.want == "" && len(wrong) > 0 || c.want != "" && !failed {
			t.Errorf("%q: got %q, want %q", c.address, wrong, c.want)
		}
	}
	if p := (Config{Address: "unix:///run/m.sock"}).SocketPath(); p != "/run/m.sock" {
		t.Errorf("socket path %q", p)
	}
	if p := (Config{Address: "127.0.0.1:1"}).SocketPath(); p != "" {
		t.Errorf("socket path %q of a port", p)
	}
}
