package kernel

import (
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	n := Network{MAC: "02:00:00:00:00:01", Hostname: "web"}
	for _, a := range []string{"10.88.0.5/16", "10.88.0.6/16", "fd00::5/64"} {
		n.AddAddress(a)
	}
	n.AddRoute("10.0.0.0/8", "10.88.0.9")
	n.AddRoute("0.0.0.0/0", "10.88.0.1")
	n.AddRoute("::/0", "fd00::1")
	got, err := n.Expand([]string{
		"ip={address}::{gateway}:{netmask}:{hostname}:eth0:off", "--ip6={address6}/{prefix6},{gateway6}", "{mac}/{prefix}",
		"{other}",
	})
	want := []string{
		"ip=10.88.0.5::10.88.0.1:255.255.0.0:web:eth0:off", "--ip6=fd00::5/64,fd00::1", "02:00:00:00:00:01/16", "{other}",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Expand = %q, %v, want %q", got, err, want)
	}
	if got, err := (Network{}).Expand([]string{"{address}{gateway6}"}); err != nil || got[0] != "" {
		t.Errorf("Expand without a network = %q, %v, want nothing", got, err)
	}
	for name, args := range map[string][]string{
		"too long": {strings.Repeat("a", argumentsLimit)}, "too many": slices.Repeat([]string{"a"}, argumentsLimit),
		"grows": {strings.Repeat("{address}", 300)}, "control character": {"a\x1b"}, "line": {"a\nb"}, "not ASCII": {"ä"},
	} {
		if _, err := n.Expand(args); err == nil {
			t.Errorf("%s: Expand = nil, want an error", name)
		}
	}
}

// TestCheckVariables: nothing that User-Mode Linux or its kernel could take for a parameter is passed on.
func TestCheckVariables(t *testing.T) {
	for _, a := range []string{"ADDRESS={address}", "A=", "A_1=/a,b:c"} {
		if err := CheckVariables([]string{a}); err != nil {
			t.Errorf("%q: %v, want no error", a, err)
		}
	}
	for _, a := range []string{
		"", "mem=1G", "hostfs=/", "ubd0=/dev/sda", "con0=xterm", "--help", "A", "=A", "A=a hostfs=/", "A=\tb", "a=B",
		"vec0:transport=tap,ifname=x", "A:B=c",
	} {
		if err := CheckVariables([]string{"A=b", a}); err == nil {
			t.Errorf("%q: no error, want one", a)
		}
	}
}
