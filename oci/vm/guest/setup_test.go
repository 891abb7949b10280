package guest

import "testing"

func TestSysctlPath(t *testing.T) {
	for key, want := range map[string]string{
		"net.ipv4.ip_forward":             "/proc/sys/net/ipv4/ip_forward",
		"net/ipv4/ip_forward":             "/proc/sys/net/ipv4/ip_forward",
		"net.ipv4.conf.eth0/1.forwarding": "/proc/sys/net/ipv4/conf/eth0.1/forwarding",
		"net/../../../etc/passwd":         "/proc/sys/etc/passwd",
	} {
		if got := sysctlPath(key); got != want {
			t.Errorf("sysctlPath(%q) = %q, want %q", key, got, want)
		}
	}
}
